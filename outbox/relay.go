package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/internal/sqlerr"
)

const (
	// pollGap is the least time between two looks that Outbox.Notify asks for: what is committed
	// meanwhile is one batch.
	pollGap = 2 * time.Millisecond
	// idleShare of the time for which there was nothing is how long the next look is put off.
	idleShare = 100
	// grace is what the statements may take that end a turn, or look whether there is one to take.
	grace = 5 * time.Second
	// linger is how long something may go on after its context has ended.
	linger = time.Second
	// prepare is what a turn may take until it publishes. SQLite's lease, of PublishTimeout and
	// grace, must not lapse before a call that lingers has been given up.
	prepare = grace - linger
)

// Relay publishes the messages of an outbox. Make it with [NewRelay]. Any number may work on
// one table, in one process or in many.
type Relay struct {
	cfg        RelayConfig
	box        *Outbox
	statements *statements
	name       string // of this relay's lease (SQLite)
	running    atomic.Bool
	stats      counters
}

// NewRelay checks the configuration; an [*InputError] names the field. It starts nothing and
// does not touch the database.
func NewRelay(cfg RelayConfig) (*Relay, error) {
	if err := cfg.required(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Relay{cfg: cfg, box: cfg.Outbox, statements: cfg.Outbox.dialect.of(&cfg), name: newID()}, nil
}

// Run publishes until ctx ends. Then it begins nothing more, lets the batches in hand end and
// returns nil. What has not ended after RelayConfig.StopTimeout is broken off, and will be
// published again: [ErrHeldUp]. A call of the publisher that does not return then either is
// left behind.
//
// It begins with [Outbox.Check] and returns its error, unless that may pass by itself. Later
// errors are told to RelayConfig.OnError, and the database is asked again. A relay runs once at
// a time; when Run has returned it may run again.
func (r *Relay) Run(ctx context.Context) error {
	if r == nil || r.box == nil {
		return inputError("Relay", "is nil or was not made by NewRelay")
	}
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("outbox: the relay is running already")
	}
	defer r.running.Store(false)
	if err := r.box.Check(ctx, r.cfg.DB); err != nil && ctx.Err() == nil && !sqlerr.Transient(err) {
		return err
	}
	// What is in hand outlives ctx, until StopTimeout is over.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	d := newDesk(r)
	var workers sync.WaitGroup
	for range r.cfg.Workers {
		workers.Go(func() {
			for no := range d.jobs {
				d.done <- r.turn(work, no, &d.shards[no])
			}
		})
	}
	d.run(ctx)
	close(d.jobs)
	return r.stop(&workers, cancel)
}

// stop waits for the workers, who end when there are no more jobs.
func (r *Relay) stop(workers *sync.WaitGroup, cancel context.CancelCauseFunc) error {
	ended := make(chan struct{})
	go func() { workers.Wait(); close(ended) }()
	if waitFor(ended, r.cfg.StopTimeout) {
		r.leave()
		return nil
	}
	cancel(ErrHeldUp)
	waitFor(ended, linger)
	return ErrHeldUp
}

func waitFor(ended <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

// leave ends the lease of SQLite, so that another relay need not wait for it to lapse.
func (r *Relay) leave() {
	if r.statements.unlock == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), linger)
	defer cancel()
	if _, err := r.cfg.DB.ExecContext(ctx, r.statements.unlock, r.name); err != nil {
		r.cfg.OnError(fmt.Errorf("outbox: the lease was not ended: %w", err))
	}
}
