package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/onceward/onceward/cmd/internal/demo/worker"
	"github.com/onceward/onceward/cmd/internal/progress"
	"github.com/onceward/onceward/dedup"
)

const (
	armAllAfter = 2 * time.Second // if the worker to crash gets no message
	giveUpAfter = 8 * time.Second // if no worker gets one
	leaveTime   = 15 * time.Second
)

// supervisor runs the workers of one composition. It starts them, carries out the schedule, and
// stops them when everything is committed. Only the goroutine of run uses its state.
type supervisor struct {
	config   worker.Config // of every worker, except the name
	producer *producer
	unique   int
	out      io.Writer // above the bar of meter
	meter    *progress.Meter
	observer dedup.Observer // of what the workers report

	began    time.Time
	notices  chan notice
	produced chan error       // the end of the producer; nil before its start and after its end
	ticks    <-chan time.Time // when to look at the schedule; nil before the first time
	workers  []*process       // alive, or not yet known to be gone
	tally    *tally

	steps    []step
	current  *step
	since    time.Time
	armedAll bool
	struck   *process // the worker that replaces the one that the step killed
	unplaced int      // crashes that found no message
}

// run returns when every message is committed and all workers are gone. After an error, too, no
// worker is left running.
func (s *supervisor) run(ctx context.Context) error {
	s.began, s.tally = time.Now(), newTally()
	s.notices = make(chan notice, 256)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.killAll()
	for _, slot := range starters {
		if err := s.start(slot); err != nil {
			return err
		}
	}
	if err := s.until(ctx, func() bool { return s.assigned(starters...) }); err != nil {
		return err
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	s.produced, s.ticks = make(chan error, 1), ticker.C
	go func(ended chan<- error) { ended <- s.producer.run(ctx) }(s.produced)
	if err := s.until(ctx, func() bool {
		return s.produced == nil && s.current == nil && len(s.steps) == 0
	}); err != nil {
		return err
	}
	return s.leave(ctx)
}

// until handles what happens until cond holds.
func (s *supervisor) until(ctx context.Context, cond func() bool) error {
	for !cond() {
		select {
		case <-ctx.Done():
			return s.unfinished(ctx)
		case n := <-s.notices:
			if err := s.notice(n); err != nil {
				return err
			}
		case err := <-s.produced:
			if err != nil && ctx.Err() == nil {
				return err
			}
			s.produced = nil
		case <-s.ticks:
			s.advance()
		}
	}
	return nil
}

// notice handles what a worker reports.
func (s *supervisor) notice(n notice) error {
	p := n.from
	if n.ended {
		s.workers = slices.DeleteFunc(s.workers, func(q *process) bool { return q == p })
		if !p.killed && (n.err != nil || !p.leaving) {
			return errors.Join(fmt.Errorf("worker %s ended by itself", p.name), n.err)
		}
		return nil
	}
	effects := len(s.tally.effected)
	s.tally.add(n.event)
	s.meter.Add(int64(len(s.tally.effected) - effects))
	switch n.event.Kind {
	case worker.Assigned:
		p.assigned = true
	case worker.Reached:
		return s.strike(p, n.event)
	case worker.HookCalled:
		return n.event.Observed.Replay(s.observer)
	}
	return nil
}

// strike kills a worker that waits at its point, and starts it again.
func (s *supervisor) strike(p *process, e worker.Event) error {
	p.kill()
	c := crash{worker: p.name, point: e.Point, id: e.ID, at: time.Since(s.began)}
	s.tally.crashes = append(s.tally.crashes, c)
	s.event("SIGKILL %s %s of %s; starting it again", c.worker, c.where(s.config.Composition), c.id)
	if p.leaving || p.slot == extra {
		return nil
	}
	if err := s.start(p.name + "'"); err != nil {
		return err
	}
	s.struck = s.workers[len(s.workers)-1]
	return nil
}

// event writes what has happened, and when.
func (s *supervisor) event(format string, args ...any) {
	fmt.Fprintf(s.out, "  %5.1fs  %s\n", time.Since(s.began).Seconds(),
		fmt.Sprintf(format, args...))
}

func (s *supervisor) start(name string) error {
	cfg := s.config
	cfg.Name = name
	p, err := startProcess(cfg, s.notices)
	if err != nil {
		return err
	}
	s.workers = append(s.workers, p)
	return nil
}

// leave stops the workers in order. If a worker does not leave, it reports that, and run kills the
// worker: everything is committed, so nobody waits for the messages that this worker holds.
func (s *supervisor) leave(ctx context.Context) error {
	for _, p := range s.workers {
		p.stop()
	}
	waiting, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	err := s.until(waiting, func() bool { return len(s.workers) == 0 })
	if err == nil || ctx.Err() != nil || waiting.Err() == nil {
		return err
	}
	for _, p := range s.workers {
		s.event("%s has not left %v after SIGTERM: SIGKILL", p.name, leaveTime)
	}
	return nil
}

// killAll kills the remaining workers and waits until they are gone. A worker that has reached its
// point meanwhile is not started again.
func (s *supervisor) killAll() {
	for _, p := range s.workers {
		p.kill()
	}
	for len(s.workers) > 0 {
		if n := <-s.notices; n.ended {
			_ = s.notice(n) // run has an error to return already, or leave has reported the worker
		}
	}
}

// assigned reports whether each slot has a live worker with partitions.
func (s *supervisor) assigned(slots ...string) bool {
	return !slices.ContainsFunc(slots, func(slot string) bool {
		p := s.alive(slot)
		return p == nil || !p.assigned
	})
}

func (s *supervisor) alive(slot string) *process {
	for _, p := range s.workers {
		if p.slot == slot && !p.killed && !p.leaving {
			return p
		}
	}
	return nil
}

func (s *supervisor) unfinished(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
		return cause
	}
	err := fmt.Errorf(
		"not finished: %-8s %5.1fs  produced %d/%d  effects %d/%d  skipped %d  crashes %d",
		s.config.Composition, time.Since(s.began).Seconds(), s.producer.sent.Load(),
		len(s.producer.messages), len(s.tally.effected), s.unique, s.tally.events[worker.Skipped],
		len(s.tally.crashes))
	for text, n := range s.tally.warnings {
		err = fmt.Errorf("%w\n  a worker said %d times: %s", err, n, text)
	}
	return err
}
