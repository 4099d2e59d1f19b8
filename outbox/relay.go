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
	// pollGap is the shortest time between two polls that Outbox.Notify asks for. Messages that are
	// committed meanwhile become one batch.
	pollGap = 2 * time.Millisecond
	// idleShare divides the time since the last message; the result is the pause before the next
	// poll.
	idleShare = 100
	// grace bounds the statements that end a turn, and those that poll.
	grace = 5 * time.Second
	// linger is how long something may continue after its context has ended.
	linger = time.Second
	// prepare is how long a turn may take before it publishes. SQLite's lease, of PublishTimeout
	// plus grace, must not lapse before the turn has given up a call that lingers.
	prepare = grace - linger
)

// Relay publishes the messages of an outbox. Make it with [NewRelay]. Any number of relays may work
// on one table, in one process or in many.
type Relay struct {
	cfg        RelayConfig
	box        *Outbox
	statements *statements
	name       string // of this relay's lease (SQLite)
	running    atomic.Bool
	stats      counters
	topics     *topics
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
	d := cfg.Outbox.dialect
	return &Relay{cfg: cfg, box: cfg.Outbox, statements: d.of(&cfg), name: newID(),
		topics: newTopics(&cfg, d.shards)}, nil
}

// Run publishes until ctx ends. Then it begins nothing new, waits for the batches that have begun
// and returns nil. After a second it cancels the context of the publisher's calls that still run.
// After RelayConfig.StopTimeout it gives up the batches that have not ended, returns [ErrHeldUp],
// and their messages will be published again. It does not wait for a call of the publisher that
// does not return even then.
//
// It begins with [Outbox.Check] and returns its error, unless that is a temporary one. Later errors
// go to RelayConfig.OnError, and the relay tries again. A relay runs once at a time; when Run has
// returned it may run again.
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
	// Batches that have begun outlive ctx, until StopTimeout is over.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	calls, giveUp := context.WithCancel(work)
	defer giveUp()
	s := &session{Relay: r, calls: calls, kept: make(chan struct{}, r.roomForLocks()),
		dispatcher: newDispatcher(r)}
	var workers sync.WaitGroup
	for range r.cfg.Workers {
		workers.Go(func() {
			for j := range s.dispatcher.jobs {
				s.dispatcher.done <- s.publishBatch(work, j)
			}
		})
	}
	workers.Go(func() { s.sweep(ctx) })
	s.dispatcher.run(ctx)
	close(s.dispatcher.jobs)
	time.AfterFunc(linger, giveUp)
	return s.stop(work, &workers, cancel)
}

// roomForLocks is how many locks may be kept for long calls. Each holds a connection; the workers
// and the dispatcher need the others.
func (r *Relay) roomForLocks() int {
	most := r.cfg.DB.Stats().MaxOpenConnections
	if most == 0 {
		return r.box.dialect.shards
	}
	return min(r.box.dialect.shards, max(0, most-r.cfg.Workers-1))
}

// stop waits for the workers, which end when there are no more jobs, and for the calls that have
// outlasted their turns. The context of those calls ends a second after that of Run.
func (s *session) stop(work context.Context, workers *sync.WaitGroup,
	cancel context.CancelCauseFunc) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		workers.Wait()
		s.last(work)
	}()
	if waitFor(ended, s.cfg.StopTimeout) {
		s.leave()
		return nil
	}
	cancel(ErrHeldUp)
	waitFor(ended, linger)
	return ErrHeldUp
}

// last settles the calls that continue after the last turn, and stops waiting for them when work
// ends.
func (s *session) last(work context.Context) {
	for no := range s.dispatcher.shards {
		state := &s.dispatcher.shards[no]
		for len(state.calls) > 0 && work.Err() == nil {
			await(state.calls, time.Until(state.calls[0].overdue(&s.cfg)))
			o := outcome{publishResult: &publishResult{}}
			s.settleLate(work, no, state, &o)
			s.notify(work, &o)
		}
		for _, c := range state.calls { // Run may be called again: their topics must come back
			s.abandon(c)
		}
		state.calls = nil
		if state.lock != nil {
			state.lock.end()
		}
	}
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

// leave ends the lease of SQLite, so that another relay does not have to wait for it to lapse.
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
