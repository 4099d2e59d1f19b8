package queue

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
)

// Consumer handles deliveries. Make it with [New]; it is safe for concurrent use, and has nothing
// to close.
type Consumer struct {
	cfg   Config
	retry backoff.Policy
	// workers bounds the handlers that run; suspects lets one message run at a time that may have
	// killed its process.
	workers, suspects chan struct{}

	identified atomic.Bool // a message with an id has come

	mu    sync.Mutex
	seed  maphash.Seed
	noIDs []uint64 // payloads of messages without an id before that
}

// New checks the configuration; an [*dedup.InputError] names the first bad field. It starts
// nothing and contacts nobody.
func New(cfg Config) (*Consumer, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	retry := backoff.Policy{Base: cfg.Attempts.RetryBase, Cap: cfg.Attempts.RetryMax}
	if err := retry.Validate(); err != nil {
		return nil, &dedup.InputError{Field: "queue.Config.Attempts", Reason: err.Error()}
	}
	return &Consumer{cfg: cfg, retry: retry, workers: make(chan struct{}, cfg.Workers),
		suspects: make(chan struct{}, 1), seed: maphash.MakeSeed()}, nil
}

// Handle handles one delivery, and returns when the broker has been told. It is for a client that
// calls back; [Consumer.Run] pulls. It returns nil when the message is done or parked, and
// acknowledged. An error says why the message is not done; the message is redelivered. After an
// [*UnprocessableError], or an error that wraps [dedup.ErrClosed], stop: the next message would
// fail in the same way.
//
// When ctx ends, the handler's context ends, too, and a message whose handler has not begun is
// given back. While the store cannot be asked, Handle asks again, and calls Extend, until ctx ends.
func (c *Consumer) Handle(ctx context.Context, d *Delivery) error {
	errs, _ := c.handle(ctx, ctx, []*Delivery{d}, nil)
	return errs[0]
}

// HandleAll handles many deliveries as [Consumer.Handle] does. They are claimed in one round trip.
// When the last handler has returned, they are recorded in one round trip, and then acknowledged:
// use it for quick handlers. The errors are in the order of ds. Messages of one Key are handled in
// order; if one is not done, those behind it are given back. Two calls do not wait for each other's
// keys.
func (c *Consumer) HandleAll(ctx context.Context, ds []*Delivery) []error {
	errs, _ := c.handle(ctx, ctx, ds, nil)
	return errs
}

// handle begins no handler after the end of ctx, and cancels running ones at the end of hard. It
// first waits for the delivery at before. fatal is why the consumer cannot continue.
func (c *Consumer) handle(ctx, hard context.Context, ds []*Delivery,
	before *position) (errs []error, fatal error) {
	b := &batch{Consumer: c, ctx: ctx, hard: hard, base: context.WithoutCancel(ctx)}
	for _, d := range ds {
		j := &job{b: b, d: d}
		j.extend()
		defer j.end() // also when an observer panics
		b.jobs = append(b.jobs, j)
	}
	b.work(before)
	b.settle()
	for _, j := range b.jobs {
		errs = append(errs, j.err)
		if j.fatal {
			fatal = j.err
		}
	}
	return errs, fatal
}

// batch is what one call handles.
type batch struct {
	*Consumer
	ctx, hard, base context.Context
	jobs            []*job
}

// work does everything except the acknowledgements.
func (b *batch) work(before *position) {
	err := before.wait(b.ctx)
	if err == nil && len(b.jobs) == 1 {
		// A single message is claimed when it can run, so that waiting uses up no attempts.
		if b.take(b.workers) {
			defer func() { <-b.workers }()
		} else {
			err = context.Cause(b.ctx)
		}
	}
	if err != nil {
		for _, j := range b.jobs {
			j.putBack(err)
		}
		return
	}
	b.ask()
	b.run()
	b.record()
}

// take waits for room, and reports whether a handler may still begin.
func (b *batch) take(room chan struct{}) bool {
	select {
	case room <- struct{}{}:
	case <-b.ctx.Done():
		return false
	}
	if b.ctx.Err() != nil {
		<-room
		return false
	}
	return true
}

// run runs the claimed messages. Messages of one key run in order; after a message that is not
// done, the rest of its key does not run.
func (b *batch) run() {
	groups := make(map[string][]*job)
	var all sync.WaitGroup
	for _, j := range b.jobs {
		switch {
		case j.decision == acknowledge || j.first != nil:
		case j.d.Key == "":
			all.Go(j.run)
		default:
			groups[j.d.Key] = append(groups[j.d.Key], j)
		}
	}
	for _, group := range groups {
		all.Go(func() {
			for i, j := range group {
				if j.run(); j.decision == acknowledge {
					continue
				}
				for _, behind := range group[i+1:] {
					behind.putBack(errBehind)
				}
				return
			}
		})
	}
	all.Wait()
}

// record ends the claims of the batch in one round trip. It continues after the end of the caller's
// context, because an effect that has happened must be recorded, until the lease ends.
func (b *batch) record() {
	var done []dedup.Completion
	var jobs []*job
	for _, j := range b.jobs {
		if j.decision == undecided && j.first == nil { // the handler ended its goroutine
			j.again(errUndecided)
		}
		if j.claim != nil {
			done, jobs = append(done, j.how), append(jobs, j)
		}
	}
	if len(done) > 0 {
		ctx, cancel := context.WithTimeout(b.base, b.cfg.Deduper.Config().LeaseTTL)
		defer cancel()
		errs := b.cfg.Deduper.CompleteBatch(ctx, done)
		for i, j := range jobs {
			var err error
			if errs != nil {
				err = errs[i]
			}
			j.recorded(ctx, err)
		}
	}
	for _, j := range b.jobs {
		if j.first == nil {
			continue
		}
		if j.decision = j.first.decision; j.decision != acknowledge {
			j.again(dedup.ErrInFlight)
		}
	}
}

// settle tells the broker what has become of each message.
func (b *batch) settle() {
	if len(b.jobs) == 1 {
		b.jobs[0].settle()
		return
	}
	var all sync.WaitGroup
	room := make(chan struct{}, b.cfg.Workers)
	for _, j := range b.jobs {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			j.settle()
		})
	}
	all.Wait()
}
