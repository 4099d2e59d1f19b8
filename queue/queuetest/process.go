package queuetest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/queue"
)

var errKilled = errors.New("queuetest: the process is dead")

// process is one consumer with a connection of its own.
type process struct {
	tr    *trial
	store *deduptest.Faulty
	stop  context.CancelFunc
	ended chan struct{}
	err   error

	mu   sync.Mutex
	dead chan struct{}
	cut  func()
	open map[string]string // ids whose effect is not acknowledged yet, with their scopes
}

// script says what a process does in addition to, or instead of, performing the effect of each
// message.
type script struct {
	workers int
	most    int // Attempts.Max
	// handle is the handler; effect counts an effect. nil: the handler only calls effect.
	handle func(ctx context.Context, p *process, d *queue.Delivery, effect func()) error
	// wrap changes deliveries as they come.
	wrap func(p *process, d *queue.Delivery)
}

// start starts a process.
func (tr *trial) start(s script) *process {
	tr.Helper()
	store := tr.store
	if tr.connect != nil {
		store = tr.connect(tr.TB)
	}
	p := &process{tr: tr, store: deduptest.NewFaulty(store, nil), ended: make(chan struct{}),
		dead: make(chan struct{}), open: map[string]string{}}
	d, err := dedup.New(p.store, dedup.Config{Namespace: namespace, Window: time.Hour,
		LeaseTTL: tr.lease, StoreTimeout: tr.lease / 5})
	if err != nil {
		tr.Fatal(err)
	}
	c, err := queue.New(p.config(d, &s))
	if err != nil {
		tr.Fatal(err)
	}
	src, cut := tr.q.Connect(tr.TB)
	p.cut = cut
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	tr.processes = append(tr.processes, p)
	go func() {
		defer close(p.ended)
		defer d.Close(ctx) //nolint:errcheck // of a process that ends
		p.err = c.Run(ctx, source{p, src, &s})
	}()
	return p
}

func (p *process) config(d *dedup.Deduper, s *script) queue.Config {
	cfg := queue.Config{Deduper: d, Workers: s.workers, Drain: 10 * time.Second,
		Attempts: queue.Attempts{Max: s.most, RetryBase: 20 * time.Millisecond,
			RetryMax: 200 * time.Millisecond},
		Logger:   slog.New(slog.DiscardHandler),
		Observer: queue.Observer{Unrecorded: p.tr.unrecorded},
		Handler:  func(ctx context.Context, d *queue.Delivery) error { return p.handle(ctx, d, s) }}
	if p.tr.q.Parked == nil {
		cfg.Park = p.tr.park
	}
	return cfg
}

// handle is the handler of a process.
func (p *process) handle(ctx context.Context, d *queue.Delivery, s *script) error {
	if !p.alive() {
		return errKilled
	}
	p.tr.ran()
	effect := func() { p.effect(d) }
	if s.handle != nil {
		return s.handle(ctx, p, d, effect)
	}
	effect()
	return nil
}

// effect counts the effect of a message, unless the process is dead by then.
func (p *process) effect(d *queue.Delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive() {
		p.open[d.ID] = d.Scope
		p.tr.effect(d.ID)
	}
}

// kill ends a process as kill -9 does: from then on, nothing that it sends reaches the broker or
// the store. The kill explains a second effect of each message whose first one is not on record by
// then.
func (p *process) kill() {
	p.mu.Lock()
	if !p.alive() {
		p.mu.Unlock()
		return
	}
	p.store.SetPlan(dropAll) // first: a handler without an effect, as p is dead, returns nil
	close(p.dead)
	open := p.open // a dead process has no effects
	p.mu.Unlock()
	for id, scope := range open {
		if rec, ok := p.tr.record(context.Background(), scope, id); !ok || !ended(rec) {
			p.tr.excuse(id)
		}
	}
	p.cut()
	p.stop()
}

func dropAll(deduptest.Call) deduptest.Fault {
	return deduptest.Fault{Kind: deduptest.DropRequest}
}

func (p *process) alive() bool {
	select {
	case <-p.dead:
		return false
	default:
		return true
	}
}

// acknowledged notes that the consumer considers a message done.
func (p *process) acknowledged(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive() {
		delete(p.open, id)
	}
}

// source is the source of a process. When the process is dead, it delivers nothing more.
type source struct {
	p   *process
	src queue.Source
	s   *script
}

// Fetch implements [queue.Source].
func (s source) Fetch(ctx context.Context, limit int) ([]*queue.Delivery, error) {
	ds, err := s.src.Fetch(ctx, limit)
	if !s.p.alive() {
		return nil, errKilled
	}
	for _, d := range ds {
		s.p.tr.arrived(d)
		s.p.guard(d)
		if s.s.wrap != nil {
			s.s.wrap(s.p, d)
		}
	}
	return ds, err
}

// guard wraps the functions of a delivery: those of a dead process do not reach the broker, and
// each Ack is judged.
func (p *process) guard(d *queue.Delivery) {
	ack, nack, extend, park := d.Ack, d.Nack, d.Extend, d.Park
	d.Ack = func(ctx context.Context) error {
		if !p.alive() {
			return errKilled
		}
		p.tr.mayAck(ctx, d)
		p.acknowledged(d.ID)
		return ack(ctx)
	}
	d.Nack = func(ctx context.Context, after time.Duration) error {
		if !p.alive() {
			return errKilled
		}
		return nack(ctx, after)
	}
	if extend != nil {
		d.Extend = func(ctx context.Context) error {
			if !p.alive() {
				return errKilled
			}
			return extend(ctx)
		}
	}
	if park != nil {
		d.Park = func(ctx context.Context, reason error) error {
			if !p.alive() {
				return errKilled
			}
			return park(ctx, reason)
		}
	}
}
