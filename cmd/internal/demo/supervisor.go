package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceward/onceward/cmd/internal/demo/worker"
)

const (
	armAllAfter = 2 * time.Second // if the worker to crash gets no message
	giveUpAfter = 8 * time.Second // if no worker gets one
	leaveTime   = 15 * time.Second
	lookEvery   = 150 * time.Millisecond
)

// supervisor runs the workers of one composition. It starts them, carries out the schedule, and
// stops them when everything is committed. Only the goroutine of run uses its state.
type supervisor struct {
	exe      string
	config   worker.Config // of every worker, except the name
	producer *producer
	unique   int
	say      *output
	pages    *pages // nil: there are none

	began   time.Time
	notices chan notice
	workers []*process // alive, or not yet known to be gone
	started map[string]int
	tally   *tally
	lag     int64

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
	s.began, s.tally, s.started = time.Now(), newTally(), make(map[string]int)
	s.lag = -1 // not known
	s.notices = make(chan notice, 256)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := s.work(ctx)
	if err != nil {
		s.killAll()
	}
	return err
}

func (s *supervisor) work(ctx context.Context) error {
	for _, slot := range starters {
		if err := s.start(slot); err != nil {
			return err
		}
	}
	if err := s.until(ctx, func() bool { return s.assigned(starters...) }); err != nil {
		return err
	}
	produced, lags := make(chan error, 1), make(chan int64)
	go func() { produced <- s.producer.run(ctx) }()
	stopLooking := s.look(ctx, lags)
	defer stopLooking()
	if err := s.perform(ctx, produced, lags); err != nil {
		return err
	}
	return s.leave(ctx)
}

// perform carries out the schedule, and returns when all messages are produced and committed.
func (s *supervisor) perform(ctx context.Context, produced <-chan error, lags <-chan int64) error {
	done := false
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.unfinished(ctx)
		case n := <-s.notices:
			if err := s.notice(n); err != nil {
				return err
			}
		case err := <-produced:
			if err != nil && ctx.Err() == nil {
				return err
			}
			done, produced = true, nil
		case s.lag = <-lags:
		case <-ticker.C:
			s.advance(done)
		}
		if done && s.lag == 0 && s.current == nil && len(s.steps) == 0 {
			return nil
		}
	}
}

// look polls the group's lag in a goroutine. It reports a lag only if it asked after the last
// message had been sent.
func (s *supervisor) look(ctx context.Context, lags chan<- int64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			all := s.producer.sent.Load() == int64(len(s.producer.messages))
			if !all {
				continue
			}
			lag, err := s.producer.topic.lag(ctx)
			if err != nil {
				continue // it asks again: the coordinator may be moving
			}
			select {
			case lags <- lag:
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// notice handles what a worker reports.
func (s *supervisor) notice(n notice) error {
	p := n.from
	if !n.ended {
		effects := len(s.tally.effected)
		s.tally.add(n.event)
		s.say.meter.Add(int64(len(s.tally.effected) - effects))
		switch n.event.Kind {
		case worker.Assigned:
			p.assigned = n.event.Partitions > 0
		case worker.Reached:
			return s.strike(p, n)
		case worker.HookCalled:
			return s.pages.hear(s.config.Composition, n.event.Observed)
		}
		return nil
	}
	p.exited = true
	s.workers = slices.DeleteFunc(s.workers, func(q *process) bool { return q == p })
	if !p.killed && (n.err != nil || !p.leaving) {
		return errors.Join(fmt.Errorf("worker %s ended by itself", p.name), n.err)
	}
	return nil
}

// strike kills a worker that waits at its point, and starts it again.
func (s *supervisor) strike(p *process, n notice) error {
	p.kill()
	c := crash{worker: p.name, point: n.event.Point, id: n.event.ID, at: n.at.Sub(s.began)}
	s.tally.crashed(c)
	s.say.event(c.at, "SIGKILL %s %s of %s; starting it again", c.worker,
		c.where(s.config.Composition), c.id)
	if p.leaving || p.slot == extra {
		return nil
	}
	if err := s.start(p.slot); err != nil {
		return err
	}
	s.struck = s.workers[len(s.workers)-1]
	return nil
}

func (s *supervisor) start(slot string) error {
	cfg := s.config
	cfg.Name = slot
	for range s.started[slot] {
		cfg.Name += "'"
	}
	s.started[slot]++
	p, err := startProcess(s.exe, cfg, s.notices)
	if err != nil {
		return err
	}
	s.workers = append(s.workers, p)
	return nil
}

// until reads notices until cond holds.
func (s *supervisor) until(ctx context.Context, cond func() bool) error {
	for !cond() {
		select {
		case <-ctx.Done():
			return s.unfinished(ctx)
		case n := <-s.notices:
			if err := s.notice(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave stops the workers in order. If a worker does not leave, it reports and kills that worker:
// everything is committed, so nobody waits for the messages that this worker holds.
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
		s.say.event(time.Since(s.began), "%s has not left %v after SIGTERM: SIGKILL",
			p.name, leaveTime)
	}
	s.killAll()
	return nil
}

// killAll kills the remaining workers and waits until they are gone.
func (s *supervisor) killAll() {
	for _, p := range s.workers {
		p.kill()
	}
	for len(s.workers) > 0 {
		_ = s.notice(<-s.notices) // the first error has been returned
	}
}

// assigned reports whether each slot has a live worker with partitions.
func (s *supervisor) assigned(slots ...string) bool {
	for _, slot := range slots {
		if p := s.alive(slot); p == nil || !p.assigned {
			return false
		}
	}
	return true
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
	err := fmt.Errorf("not finished: %s", s.status())
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return context.Cause(ctx)
	}
	for text, n := range s.tally.warnings {
		err = fmt.Errorf("%w\n  a worker said %d times: %s", err, n, text)
	}
	return err
}

func (s *supervisor) status() string {
	return fmt.Sprintf("%-8s %5.1fs  produced %d/%d  effects %d/%d  skipped %d  crashes %d",
		s.config.Composition, time.Since(s.began).Seconds(), s.producer.sent.Load(),
		len(s.producer.messages),
		len(s.tally.effected), s.unique, s.tally.duplicates(), len(s.tally.crashes))
}
