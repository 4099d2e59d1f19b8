package owned

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// TestCrashedKeysReachTheirCap: a key that kills its process is a suspect for the next owner. Its
// attempts are counted across all deaths, and a claim ahead of time does not take it.
func TestCrashedKeysReachTheirCap(t *testing.T) {
	story(t, func(w *world) {
		t := w.T
		done, killer, beside := request(1), request(2), request(3)
		s := w.process()
		o := w.own(s)
		for _, r := range []driver.ClaimRequest{done, killer, beside} {
			w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
		}
		st := o.Stats()
		assert.EqualValues(t, 3, st.Saved, "three keys were to be new")
		assert.Equal(t, 3, st.InFlight)
		w.finish(s, success(&done))
		for attempt := 2; attempt <= 4; attempt++ {
			w.crash(s)
			pass(w.opts.Lease + time.Second)
			s = w.process()
			o = w.own(s)
			w.wants("a key that was done", w.claim(s, request(1)), dedup.Duplicate, 0)
			ahead := request(2)
			ahead.OnlyNew = true
			a := w.claim(s, ahead)
			w.wants("claimed ahead", a, dedup.InFlight, attempt-1)
			assert.LessOrEqual(t, a.Record.Remaining, time.Duration(0),
				"nobody is in the way")
			w.wants("after a crash", w.claim(s, request(2)), dedup.Acquired, attempt)
			assert.Equal(t, 2, o.Stats().Suspects, "attempt %d: want two suspects", attempt)
		}
		last := request(3)
		w.wants("the neighbour", w.claim(s, last), dedup.Acquired, 2)
		a := w.finish(s, success(&last))
		assert.True(t, a.Held && a.Written, "the end of a suspect: %+v", a)
		w.wants("the neighbour again", w.claim(s, request(3)), dedup.Duplicate, 0)
	})
}

// TestAHandlerRunsOnPastRelease: a key that still runs becomes a claim of the inner store, where
// the next owner finds it. There are no suspects, and no attempt is counted.
func TestAHandlerRunsOnPastRelease(t *testing.T) {
	story(t, func(w *world) {
		t := w.T
		old, next := w.process(), w.process()
		was := w.own(old)
		slow, unused := request(1), request(2)
		w.wants("a new key", w.claim(old, slow), dedup.Acquired, 1)
		w.wants("a key ahead", w.claim(old, unused), dedup.Acquired, 1)
		back := success(&unused)
		back.State, back.EffectApplied, back.NotAttempted = driver.StateReleased, false, true
		a := w.finish(old, back)
		assert.True(t, a.Held && a.Written, "given back: %+v", a)
		must(t, was.Release(t.Context()))
		must(t, was.Release(t.Context()))
		assert.ErrorIs(t, context.Cause(was.Context()), ErrReleased, "Context ended")
		is := w.own(next)
		assert.Equal(t, 0, is.Stats().Suspects, "a clean handover leaves suspects")
		w.wants("what still runs", w.claim(next, request(1)), dedup.InFlight, 1)
		w.wants("what was given back", w.claim(next, request(2)), dedup.Acquired, 1)
		a = w.finish(old, success(&slow))
		assert.True(t, a.Held && a.Written, "the end of what ran on: %+v", a)
		w.wants("and then", w.claim(next, request(1)), dedup.Duplicate, 0)
	})
}

// TestTwoMembersOfOneStore: two consumers of one process may share a Store. The second waits for
// the first, as in another process: the error says for how long, and nothing is lost.
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
			_, err := s.Acquire(w.Context(), only)
			assert.True(w, errors.As(err, &held) && held.Remaining > 0 &&
				held.Remaining <= w.opts.Lease, "from %s: %v", name, err)
			assert.Zero(w, log.Len(), "from %s, what was never ours", name)
		}
		reserved := Partition{Source: only.Source, Number: 3, Count: 4}
		s.taken[reserved.place()] = true
		var held *HeldError
		_, err := s.Acquire(w.Context(), reserved)
		assert.True(w, errors.As(err, &held) && held.Remaining == w.opts.Lease,
			"while it is acquired: %v", err)
		must(w, o.Release(w.Context()))
		_, err = s.Acquire(w.Context(), only)
		assert.NoError(w, err, "after Release")
	})
}
