package queue

import (
	"context"
	"errors"
	"sync"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
)

// Run pulls deliveries from src and handles them with Config.Workers, until ctx ends. Then it
// fetches nothing more, and gives back the messages that have not begun. It waits up to
// Config.Drain for the handlers, cancels those that are left, waits for them, and returns nil. A
// handler that ignores its context keeps Run from returning.
//
// When it cannot continue, it drains in the same way and returns an error: an
// [*UnprocessableError], one that wraps [dedup.ErrClosed], an [*dedup.InputError], or one of src
// for which [dedup.IsPermanent] is true. After any other error of src it logs the error and fetches
// again, with a backoff.
func (c *Consumer) Run(ctx context.Context, src Source) error {
	if ctx == nil || src == nil {
		return &dedup.InputError{Field: "queue.Run", Reason: "has a nil context or Source"}
	}
	hard, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop, halt := context.WithCancelCause(ctx)
	defer halt(nil)
	r := &runner{Consumer: c, src: src, ctx: stop, hard: hard, halt: halt,
		room: make(chan struct{}, c.cfg.Buffer), last: map[string]*position{}}
	r.fetch()
	halt(nil)
	drained := make(chan struct{})
	go func() { r.all.Wait(); close(drained) }()
	budget, end := context.WithTimeout(hard, c.cfg.Drain)
	defer end()
	select {
	case <-drained:
	case <-budget.Done():
		cancel(errDrained)
		<-drained
	}
	return r.err
}

// runner is one Run.
type runner struct {
	*Consumer
	src       Source
	ctx, hard context.Context // nothing begins after ctx, handlers end with hard
	halt      context.CancelCauseFunc
	room      chan struct{} // one for each delivery that is held
	all       sync.WaitGroup

	mu   sync.Mutex
	last map[string]*position // of each key, the delivery that came last
	err  error                // why it cannot continue
}

// position is the place of a delivery in the order of its key.
type position struct {
	done chan struct{}
	ok   bool // set before done is closed: the one behind it may run
}

// wait waits until the delivery at p has ended, if there is one. An error says why the delivery
// behind it may not run.
func (p *position) wait(ctx context.Context) error {
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		if !p.ok {
			return errBehind
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fetch takes deliveries from the source while there is room, until ctx ends.
func (r *runner) fetch() {
	for failures := 0; ; {
		n := r.reserve()
		if n == 0 {
			return
		}
		ds, err := r.src.Fetch(r.ctx, n)
		for _, d := range ds {
			if n--; n < 0 { // more than it was asked for
				r.room <- struct{}{}
			}
			r.start(d)
		}
		for ; n > 0; n-- {
			<-r.room
		}
		switch {
		case err == nil:
			failures = 0
			continue
		case r.ctx.Err() != nil:
			return
		case dedup.IsPermanent(err), errors.Is(err, dedup.ErrClosed):
			r.fail(err)
			return
		}
		r.cfg.Logger.Warn("queue: broker could not be asked for messages", "error", err)
		if backoff.Sleep(r.ctx, r.retry.Delay(failures, 0, nil)) != nil {
			return
		}
		failures++
	}
}

// reserve waits for room, takes all that is free, and returns how much that is: 0 when ctx has
// ended.
func (r *runner) reserve() (n int) {
	select {
	case r.room <- struct{}{}:
		n = 1
	case <-r.ctx.Done():
		return 0
	}
	for {
		select {
		case r.room <- struct{}{}:
			n++
		default:
			return n
		}
	}
}

// start handles a delivery in a goroutine, after the earlier ones of its key.
func (r *runner) start(d *Delivery) {
	at := &position{done: make(chan struct{})}
	var before *position
	if d.Key != "" {
		r.mu.Lock()
		before, r.last[d.Key] = r.last[d.Key], at
		r.mu.Unlock()
	}
	r.all.Go(func() {
		defer func() { <-r.room }()
		defer func() {
			r.mu.Lock()
			if r.last[d.Key] == at {
				delete(r.last, d.Key)
			}
			r.mu.Unlock()
			close(at.done)
		}()
		errs, fatal := r.handle(r.ctx, r.hard, []*Delivery{d}, before)
		at.ok = errs[0] == nil
		if fatal != nil {
			r.fail(fatal)
		}
	})
}

// fail ends Run because of err.
func (r *runner) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	r.halt(err)
}
