package demo

import (
	"time"

	"github.com/onceward/onceward/cmd/internal/demo/worker"
)

// advance ends the current step when that is over, and begins the next step when its time has come.
// The producer holds back the end of the stream until the last step is over. It sends single
// messages of that end while a crash waits for a message.
func (s *supervisor) advance(exhausted bool) {
	if s.current != nil && s.over(exhausted) {
		s.end()
	}
	if s.current == nil && len(s.steps) > 0 {
		share := float64(len(s.tally.effected)) / float64(s.unique)
		if share >= s.steps[0].share || exhausted {
			s.begin(s.steps[0])
			s.steps = s.steps[1:]
		}
	}
	s.producer.setTail(s.tail())
}

func (s *supervisor) tail() flow {
	switch {
	case s.current == nil && len(s.steps) == 0:
		return flowing
	case s.current == nil: // the next step may only become due in the tail
		return dripping
	case s.current.act == crashing && s.struck == nil:
		return dripping
	}
	return holding
}

func (s *supervisor) begin(next step) {
	s.current, s.since, s.struck = &next, time.Now(), nil
	elapsed := s.since.Sub(s.began)
	switch p := s.alive(next.slot); {
	case next.act == crashing && p != nil:
		_ = p.send(worker.Command{Arm: next.point}) // a worker that is gone is noticed elsewhere
	case next.act == joining:
		if err := s.start(next.slot); err != nil {
			s.say.event(elapsed, "%s could not be started: %v", next.slot, err)
			return
		}
		s.say.event(elapsed, "%s joins the group", next.slot)
	case next.act == leaving && p != nil:
		s.say.event(elapsed, "SIGTERM %s: it finishes what it runs, commits and leaves", p.name)
		p.stop()
	}
}

func (s *supervisor) end() {
	s.current = nil
	if !s.armedAll {
		return
	}
	s.armedAll = false
	for _, p := range s.workers {
		_ = p.send(worker.Command{Disarm: true})
	}
}

// over reports whether the current step has happened, or can no longer happen.
func (s *supervisor) over(exhausted bool) bool {
	waited := time.Since(s.since)
	switch s.current.act {
	case joining:
		return s.assigned(s.current.slot)
	case leaving:
		return s.alive(s.current.slot) == nil && s.gone(s.current.slot)
	}
	switch {
	case s.struck != nil:
		return s.struck.assigned || s.struck.exited
	case exhausted && waited > giveUpAfter:
		s.unplaced++
		return true
	case !s.armedAll && (waited > armAllAfter || s.producer.inTail()):
		s.armedAll = true
		for _, p := range s.workers {
			if p.slot != extra && !p.killed {
				_ = p.send(worker.Command{Arm: s.current.point})
			}
		}
	}
	return false
}

func (s *supervisor) gone(slot string) bool {
	for _, p := range s.workers {
		if p.slot == slot {
			return false
		}
	}
	return true
}
