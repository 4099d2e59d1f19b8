package owned

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
)

// once calls f the first time that it is called, and nothing after that.
func once(f func()) func() {
	called := false
	return func() {
		if !called {
			called = true
			f()
		}
	}
}

// begunLeft is how many begins are on record.
func (w *world) begunLeft(o *Ownership) int64 {
	w.Helper()
	return w.client.HLen(w.Context(), o.names.run).Val()
}

// TestInFlightIsBoundedForAll: the bound holds for two concurrent claims together.
func TestInFlightIsBoundedForAll(t *testing.T) {
	story(t, func(w *world) {
		w.opts.InFlight = 4
		s := w.process()
		o := w.own(s)
		var reqs, more []driver.ClaimRequest
		for n := range 4 {
			reqs, more = append(reqs, request(n)), append(more, request(10+n))
		}
		var second []driver.Answer
		s.between = once(func() { second = s.Claim(w.Context(), more) })
		for _, a := range append(s.Claim(w.Context(), reqs), second...) {
			w.wants("a new key", a, dedup.Acquired, 1)
		}
		st := o.Stats()
		assert.Equal(w, 4, st.InFlight, "want 4 in flight of 8 that were new")
		assert.EqualValues(w, 4, st.Saved)
		for _, r := range append(reqs, more...) {
			w.finish(s, success(&r))
		}
		assert.Equal(w, 0, o.Stats().InFlight, "all have ended")
		assert.Zero(w, w.begunLeft(o), "begins are left on record")
	})
}

// TestABeginStaysForTheKeysThatHaveNotEnded: the field of a begin goes when all of its keys have
// ended, even if some end twice. Without the field a key that still runs would be new to the next
// owner, who would count no attempt.
func TestABeginStaysForTheKeysThatHaveNotEnded(t *testing.T) {
	for name, end := range map[string]func(w *world, s *Store, r *driver.ClaimRequest){
		"the same end twice in a batch": func(w *world, s *Store, r *driver.ClaimRequest) {
			for _, a := range s.Finish(w.Context(), []driver.Finish{success(r), success(r)}) {
				assert.True(w, a.Err == nil && a.Held && a.Written, "an end: %+v", a)
			}
		},
		"the same end twice at a time": func(w *world, s *Store, r *driver.ClaimRequest) {
			s.between = once(func() { w.finish(s, success(r)) })
			w.finish(s, success(r))
		},
		"promoted while it is marked": func(w *world, s *Store, r *driver.ClaimRequest) {
			danger := driver.Renewal{ID: r.ID, Token: r.Token, Lease: r.Lease, Hold: r.Hold,
				Irreversible: true, Window: w.opts.Window}
			s.between = once(func() {
				a := s.Renew(w.Context(), []driver.Renewal{danger})[0]
				assert.True(w, a.Err == nil && a.Held, "Irreversible: %+v", a)
			})
			w.finish(s, success(r))
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				s := w.process()
				o := w.own(s)
				reqs := []driver.ClaimRequest{request(1), request(2)}
				for _, a := range s.Claim(w.Context(), reqs) {
					w.wants("a new key", a, dedup.Acquired, 1)
				}
				end(w, s, &reqs[0])
				assert.EqualValues(w, 1, w.begunLeft(o), "one of two has ended")
				assert.Equal(w, 1, o.Stats().InFlight)
				w.finish(s, success(&reqs[1]))
				third := request(3)
				w.claim(s, third) // a key that ended during a batch write goes with the next
				w.finish(s, success(&third))
				assert.Zero(w, w.begunLeft(o), "all have ended")
				assert.Equal(w, 0, o.Stats().InFlight)
			})
		})
	}
}

// TestABatchOverManyPartitions: each key is begun and marked in its own partition.
func TestABatchOverManyPartitions(t *testing.T) {
	const parts = 3 * fewParts
	b := redistest.Open(t, "miniredis")
	opts := storyOptions()
	opts.Prefix = b.Prefix
	s := open(t, b, opts)
	var all []*Ownership
	for number := range int32(parts) {
		all = append(all, ready(t, s,
			Partition{Source: only.Source, Number: number, Count: parts, Generation: 1}))
	}
	var ends []driver.Finish
	for round := range 3 {
		var reqs []driver.ClaimRequest
		for n := range 4 * parts {
			reqs = append(reqs, at(request(1000*round+n), int32(n%parts)))
		}
		ended, claimed := s.FinishClaim(t.Context(), ends, reqs)
		for _, a := range claimed {
			require.NoError(t, a.Err)
			assert.Equal(t, dedup.Acquired, a.Outcome, "a new key")
		}
		for _, a := range ended {
			require.NoError(t, a.Err)
			assert.True(t, a.Held && a.Written, "an end: %+v", a)
		}
		ends = ends[:0]
		for i := range reqs {
			ends = append(ends, success(&reqs[i]))
		}
	}
	for _, o := range all {
		left := b.Client.HLen(t.Context(), o.names.run).Val()
		st := o.Stats()
		assert.EqualValues(t, 12, st.Saved,
			"partition %d: want 12 that were new, the last 4 in flight in one begin", o.part.Number)
		assert.Equal(t, 4, st.InFlight,
			"partition %d: want 12 that were new, the last 4 in flight in one begin", o.part.Number)
		assert.EqualValues(t, 1, left,
			"partition %d: want 12 that were new, the last 4 in flight in one begin", o.part.Number)
	}
}
