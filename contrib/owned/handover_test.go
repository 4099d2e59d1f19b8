package owned

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
)

// TestCrashedKeysReachTheirCap: a key that kills its process is a suspect for the next owner. Its
// attempts are counted across all deaths, and who claims ahead of time leaves it alone.
func TestCrashedKeysReachTheirCap(t *testing.T) {
	story(t, func(w *world) {
		t := w.T
		done, killer, beside := request(1), request(2), request(3)
		s := w.process()
		o := w.own(s)
		for _, r := range []dedup.ClaimRequest{done, killer, beside} {
			w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
		}
		if st := o.Stats(); st.Saved != 3 || st.InFlight != 3 {
			t.Errorf("three keys were to be new: %+v", st)
		}
		w.finish(s, success(&done))
		for attempt := 2; attempt <= 4; attempt++ {
			w.crash(s)
			pass(w.opts.Lease + time.Second)
			s = w.process()
			o = w.own(s)
			w.wants("a key that was done", w.claim(s, request(1)), dedup.Duplicate, 0)
			ahead := request(2)
			ahead.FirstOnly = true
			a := w.claim(s, ahead)
			w.wants("claimed ahead", a, dedup.InFlight, attempt-1)
			if a.Record.Remaining > 0 {
				t.Errorf("nobody is in the way, and Remaining is %v", a.Record.Remaining)
			}
			w.wants("after a crash", w.claim(s, request(2)), dedup.Acquired, attempt)
			if st := o.Stats(); st.Suspects != 2 {
				t.Errorf("attempt %d: want two suspects: %+v", attempt, st)
			}
		}
		last := request(3)
		w.wants("the neighbour", w.claim(s, last), dedup.Acquired, 2)
		if a := w.finish(s, success(&last)); !a.Held || !a.Written {
			t.Errorf("the end of a suspect: %+v", a)
		}
		w.wants("the neighbour again", w.claim(s, request(3)), dedup.Duplicate, 0)
	})
}

// TestAHandlerRunsOnPastRelease: what still runs becomes a claim of the inner store, where the next
// owner finds it; there are no suspects, and no attempt is counted.
func TestAHandlerRunsOnPastRelease(t *testing.T) {
	story(t, func(w *world) {
		t := w.T
		old, next := w.process(), w.process()
		was := w.own(old)
		slow, unused := request(1), request(2)
		w.wants("a new key", w.claim(old, slow), dedup.Acquired, 1)
		w.wants("a key ahead", w.claim(old, unused), dedup.Acquired, 1)
		back := success(&unused)
		back.State, back.Landed, back.Unused = dedup.StateReleased, false, true
		if a := w.finish(old, back); !a.Held || !a.Written {
			t.Errorf("given back: %+v", a)
		}
		must(t, was.Release(t.Context()))
		must(t, was.Release(t.Context()))
		if cause := context.Cause(was.Context()); !errors.Is(cause, ErrReleased) {
			t.Errorf("Context ended with %v", cause)
		}
		is := w.own(next)
		if st := is.Stats(); st.Suspects != 0 {
			t.Errorf("a clean handover leaves suspects: %+v", st)
		}
		w.wants("what still runs", w.claim(next, request(1)), dedup.InFlight, 1)
		w.wants("what was given back", w.claim(next, request(2)), dedup.Acquired, 1)
		if a := w.finish(old, success(&slow)); !a.Held || !a.Written {
			t.Errorf("the end of what ran on: %+v", a)
		}
		w.wants("and then", w.claim(next, request(1)), dedup.Duplicate, 0)
	})
}

// TestTwoMembersOfOneStore: two consumers of one process may share a Store. Who comes second waits
// for the first, as in another process: it is told for how long, and nothing is lost by it.
func TestTwoMembersOfOneStore(t *testing.T) {
	story(t, func(w *world) {
		var log bytes.Buffer
		w.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s := w.process()
		o := w.own(s)
		pass(time.Second)
		for name, s := range map[string]*Store{"the same Store": s, "another": w.process()} {
			log.Reset()
			var held *HeldError
			if _, err := s.Acquire(w.Context(), only); !errors.As(err, &held) ||
				held.Remaining <= 0 || held.Remaining > w.opts.Lease {
				w.Errorf("from %s: %v", name, err)
			}
			if log.Len() > 0 {
				w.Errorf("from %s, what was never ours: %s", name, &log)
			}
		}
		reserved := Partition{Source: only.Source, Number: 3, Count: 4}
		s.taken[reserved.place()] = true
		var held *HeldError
		if _, err := s.Acquire(w.Context(), reserved); !errors.As(err, &held) ||
			held.Remaining != w.opts.Lease {
			w.Errorf("while it is acquired: %v", err)
		}
		must(w, o.Release(w.Context()))
		if _, err := s.Acquire(w.Context(), only); err != nil {
			w.Errorf("after Release: %v", err)
		}
	})
}
