package queuetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/queue"
)

// patience is how long a row waits for what must happen. The test of this package shortens it.
var patience = 60 * time.Second

// settleTime is how long acknowledgements may be on their way.
const settleTime = 500 * time.Millisecond

var errKilled = errors.New("queuetest: the process is dead")

// trial is one row under way. Its processes share a store, and their effects are counted.
type trial struct {
	testing.TB
	q     Queue
	store dedup.Store
	lease time.Duration

	mu        sync.Mutex
	sent      []Message
	effects   map[string]int
	arrivals  map[string]int // deliveries
	excused   map[string]int // effects that a kill explains
	parked    map[string]int // by Config.Park
	order     []string       // ids in the order of their effects
	faults    []string       // what was wrong with deliveries
	processes []*process
}

func newTrial(t testing.TB, q Queue) *trial {
	return &trial{TB: t, q: q, store: dedup.Memory(10_000), lease: max(q.AckWait, time.Second),
		effects: map[string]int{}, arrivals: map[string]int{}, excused: map[string]int{},
		parked: map[string]int{}}
}

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
}

// script is what a process does otherwise than to have the effect of each message.
type script struct {
	workers int
	most    int // Attempts.Max
	// handle is the handler; effect counts. nil: it has the effect.
	handle func(ctx context.Context, p *process, d *queue.Delivery, effect func()) error
	// wrap changes deliveries as they come.
	wrap func(p *process, d *queue.Delivery)
}

// start starts a process.
func (tr *trial) start(s script) *process {
	tr.Helper()
	p := &process{tr: tr, store: deduptest.NewFaulty(tr.store, nil), ended: make(chan struct{}),
		dead: make(chan struct{})}
	d, err := dedup.New(p.store, dedup.Config{Namespace: "queuetest", Window: time.Hour,
		LeaseTTL: tr.lease, StoreTimeout: tr.lease / 5})
	if err != nil {
		tr.Fatal(err)
	}
	cfg := queue.Config{Deduper: d, Workers: s.workers, Drain: 10 * time.Second,
		Attempts: queue.Attempts{Max: s.most, RetryBase: 20 * time.Millisecond,
			RetryMax: 200 * time.Millisecond},
		Logger:  slog.New(slog.DiscardHandler),
		Handler: func(ctx context.Context, d *queue.Delivery) error { return p.handle(ctx, d, &s) }}
	if tr.q.Parked == nil {
		cfg.Park = tr.park
	}
	c, err := queue.New(cfg)
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

func (tr *trial) park(_ context.Context, d *queue.Delivery, _ error) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.parked[d.ID]++
	return nil
}

// handle is the handler of a process.
func (p *process) handle(ctx context.Context, d *queue.Delivery, s *script) error {
	if !p.alive() {
		return errKilled
	}
	effect := func() { p.tr.effect(d.ID) }
	if s.handle != nil {
		return s.handle(ctx, p, d, effect)
	}
	effect()
	return nil
}

func (tr *trial) effect(id string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.effects[id]++
	tr.order = append(tr.order, id)
}

// excuse notes that a kill explains one more effect of a message.
func (tr *trial) excuse(id string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.excused[id]++
}

func (tr *trial) count(of map[string]int, id string) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return of[id]
}

// kill ends a process as kill -9 does: nothing of it reaches the broker or the store any more.
func (p *process) kill() {
	p.mu.Lock()
	if !p.alive() {
		p.mu.Unlock()
		return
	}
	close(p.dead)
	p.mu.Unlock()
	p.store.SetPlan(func(deduptest.Call) deduptest.Fault {
		return deduptest.Fault{Kind: deduptest.DropRequest}
	})
	p.cut()
	p.stop()
}

func (p *process) alive() bool {
	select {
	case <-p.dead:
		return false
	default:
		return true
	}
}

// source is that of a process, whose deliveries are as good as gone when it is dead.
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

// arrived looks at a delivery.
func (tr *trial) arrived(d *queue.Delivery) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.arrivals[d.ID]++
	known := slices.IndexFunc(tr.sent, func(m Message) bool { return m.ID == d.ID })
	switch {
	case known < 0:
		tr.fault("a delivery has the ID %q, which was not sent", d.ID)
	case string(d.Payload) != string(PayloadOf(d.ID)):
		tr.fault("the delivery of %s has the payload %q", d.ID, d.Payload)
	case tr.q.Ordered && tr.sent[known].Key != "" && d.Key != tr.sent[known].Key:
		tr.fault("the delivery of %s has the key %q", d.ID, d.Key)
	case d.Ack == nil, d.Nack == nil:
		tr.fault("the delivery of %s has no Ack or no Nack", d.ID)
	case d.Extend != nil && d.Every <= 0:
		tr.fault("the delivery of %s has Extend and not Every", d.ID)
	}
}

// fault notes what is wrong; tr.mu is held.
func (tr *trial) fault(format string, args ...any) {
	if len(tr.faults) < 5 {
		tr.faults = append(tr.faults, fmt.Sprintf(format, args...))
	}
}

// guard keeps a dead process from the broker, and judges each Ack.
func (p *process) guard(d *queue.Delivery) {
	ack, nack, extend, park := d.Ack, d.Nack, d.Extend, d.Park
	d.Ack = func(ctx context.Context) error {
		if !p.alive() {
			return errKilled
		}
		p.tr.mayAck(ctx, d)
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

// mayAck convicts an Ack of a message that is not on record.
func (tr *trial) mayAck(ctx context.Context, d *queue.Delivery) {
	id, err := driver.NewID("queuetest", d.Scope, d.ID)
	if err != nil {
		return // parked: nothing can be on record
	}
	rec := tr.store.Lookup(ctx, []driver.ID{id})[0].Record
	ended := rec.State == driver.StateSucceeded || rec.State == driver.StateFailed
	if parked := rec.State == driver.StateReleased && rec.Attempt > 0; !ended && !parked {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.fault("%s was acknowledged although it is %v", d.ID, rec.State)
	}
}

// send sends messages, each copies times.
func (tr *trial) send(copies int, messages ...Message) {
	tr.Helper()
	tr.mu.Lock()
	tr.sent = append(tr.sent, messages...)
	tr.mu.Unlock()
	for range copies {
		tr.q.Send(tr.TB, messages...)
	}
}

// await waits until something is so.
func (tr *trial) await(what string, so func() bool) {
	tr.Helper()
	if !tr.within(patience, so) {
		tr.report()
		tr.Fatalf("queuetest: %s: not so after %v; the broker has %d messages left", what,
			patience, tr.q.Left(tr.TB))
	}
}

// within reports whether something is so before a time has passed.
func (tr *trial) within(limit time.Duration, so func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}

// through waits until every message has had its effect, or was parked, and the broker has none
// left, and judges.
func (tr *trial) through() {
	tr.Helper()
	tr.await("every message has had its effect", func() bool {
		gone := tr.gone()
		for _, m := range tr.sent {
			if tr.count(tr.effects, m.ID) == 0 && gone[m.ID] == 0 {
				return false
			}
		}
		return true
	})
	none := func() bool { return tr.q.Left(tr.TB) == 0 }
	if tr.q.AckWait == 0 && !tr.within(settleTime, none) {
		// Where an acknowledgement was lost, only the end of the connection has it redelivered.
		for _, p := range tr.processes {
			p.stop()
			<-p.ended
			p.kill()
		}
		tr.start(script{workers: 4})
	}
	tr.await("the broker has no message left", none)
	tr.report()
}

// gone are the messages that were parked.
func (tr *trial) gone() map[string]int {
	gone := map[string]int{}
	if tr.q.Parked != nil {
		for _, id := range tr.q.Parked(tr.TB) {
			gone[id]++
		}
		return gone
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for id, n := range tr.parked {
		gone[id] = n
	}
	return gone
}

// report convicts effects that nothing explains, and deliveries that were wrong.
func (tr *trial) report() {
	tr.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var doubled []string
	for id, n := range tr.effects {
		if n > 1+tr.excused[id] {
			doubled = append(doubled, fmt.Sprintf("%s (%d)", id, n))
		}
	}
	if slices.Sort(doubled); len(doubled) > 0 {
		tr.Errorf("queuetest: effects that happened again, and no kill explains it: %s",
			strings.Join(doubled[:min(len(doubled), 10)], ", "))
	}
	for _, fault := range tr.faults {
		tr.Errorf("queuetest: %s", fault)
	}
}

// end ends the processes.
func (tr *trial) end() {
	for _, p := range tr.processes {
		p.stop()
	}
	for _, p := range tr.processes {
		select {
		case <-p.ended:
			p.kill() // its connection
		case <-time.After(patience):
			tr.Errorf("queuetest: Run did not return after its context had ended")
			continue
		}
		if p.err != nil && !errors.Is(p.err, errKilled) {
			tr.Errorf("queuetest: Run returned %v", p.err)
		}
	}
}

// messages returns n messages with ids of their own.
func messages(prefix string, n int) []Message {
	made := make([]Message, n)
	for i := range made {
		made[i].ID = fmt.Sprintf("%s-%d", prefix, i)
	}
	return made
}
