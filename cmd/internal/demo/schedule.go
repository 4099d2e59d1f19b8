package demo

import (
	"slices"
	"time"

	"github.com/onceward/onceward/cmd/internal/demo/worker"
)

// act is something that the supervisor does to the workers.
type act uint8

const (
	crashing act = iota // the worker of slot is killed at point, and started again
	joining             // another worker joins the group
	leaving             // that worker leaves the group
)

// step is an act and the time of its beginning: when this share of the ids has had its effect.
type step struct {
	share float64
	act   act
	slot  string
	point worker.Point
}

// extra is the worker that joins and leaves.
const extra = "w3"

// starters are the workers that run from the beginning.
var starters = []string{"w1", "w2"}

// schedule plans a run. Each step waits until the one before is over. Very short streams have fewer
// crashes.
func schedule(unique int) []step {
	full := []step{
		{0.08, crashing, "w1", worker.BeforeEffect},
		{0.20, joining, extra, ""},
		{0.30, crashing, "w2", worker.AfterEffect},
		{0.42, leaving, extra, ""},
		{0.52, crashing, "w2", worker.BeforeEffect},
		{0.70, crashing, "w1", worker.AfterEffect},
	}
	switch {
	case unique < 20:
		return nil
	case unique < 100:
		return full[:4]
	}
	return full
}

// advance ends the current step when that is over, and begins the next step when its time has come.
// The producer holds back the end of the stream until the last step is over. It sends single
// messages of that end while a crash waits for a message.
func (s *supervisor) advance() {
	if s.current != nil && s.over() {
		s.current = nil
		if s.armedAll {
			s.armedAll = false
			s.arm("", s.workers...)
		}
	}
	if s.current == nil && len(s.steps) > 0 {
		share := float64(len(s.tally.effected)) / float64(s.unique)
		if share >= s.steps[0].share || s.producer.exhausted() {
			s.begin(s.steps[0])
			s.steps = s.steps[1:]
		}
	}
	s.producer.tail.Store(int32(s.tail()))
}

func (s *supervisor) tail() flow {
	switch {
	case s.current == nil && len(s.steps) == 0:
		return flowing
	case s.current == nil, // the next step may only become due in the tail
		s.current.act == crashing && s.struck == nil:
		return dripping
	}
	return holding
}

func (s *supervisor) begin(next step) {
	s.current, s.since, s.struck = &next, time.Now(), nil
	switch p := s.alive(next.slot); {
	case next.act == crashing && p != nil:
		s.arm(next.point, p)
	case next.act == joining:
		if err := s.start(next.slot); err != nil {
			s.event("%s could not be started: %v", next.slot, err)
			return
		}
		s.event("%s joins the group", next.slot)
	case next.act == leaving && p != nil:
		s.event("SIGTERM %s: it finishes what it runs, commits and leaves", p.name)
		p.stop()
	}
}

// arm sets the point at which the workers are to be killed; "" cancels that.
func (s *supervisor) arm(p worker.Point, workers ...*process) {
	for _, w := range workers {
		_ = w.send(p) // a worker that is gone is noticed elsewhere
	}
}

// over reports whether the current step has happened, or can no longer happen.
func (s *supervisor) over() bool {
	waited := time.Since(s.since)
	switch {
	case s.current.act == joining:
		return s.assigned(s.current.slot)
	case s.current.act == leaving:
		return !slices.ContainsFunc(s.workers,
			func(p *process) bool { return p.slot == s.current.slot })
	case s.struck != nil:
		return s.struck.assigned
	case s.producer.exhausted() && waited > giveUpAfter:
		s.unplaced++
		return true
	case !s.armedAll && (waited > armAllAfter || s.producer.inTail()):
		s.armedAll = true
		for _, p := range s.workers {
			if p.slot != extra && !p.killed {
				s.arm(s.current.point, p)
			}
		}
	}
	return false
}
