package owned

import (
	"testing"

	"github.com/onceward/onceward/dedup"
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

// TestInFlightIsBoundedForAll: two claims at a time have the bound together.
func TestInFlightIsBoundedForAll(t *testing.T) {
	story(t, func(w *world) {
		w.opts.InFlight = 4
		s := w.process()
		o := w.own(s)
		var reqs, more []dedup.ClaimRequest
		for n := range 4 {
			reqs, more = append(reqs, request(n)), append(more, request(10+n))
		}
		var second []dedup.Answer
		s.between = once(func() { second = s.Claim(w.Context(), more) })
		for _, a := range append(s.Claim(w.Context(), reqs), second...) {
			w.wants("a new key", a, dedup.Acquired, 1)
		}
		if st := o.Stats(); st.InFlight != 4 || st.Saved != 4 {
			w.Errorf("want 4 in flight of 8 that were new: %+v", st)
		}
		for _, r := range append(reqs, more...) {
			w.finish(s, success(&r))
		}
		if st := o.Stats(); st.InFlight != 0 {
			w.Errorf("all have ended: %+v", st)
		}
		if n := w.begunLeft(o); n != 0 {
			w.Errorf("%d begins are left on record", n)
		}
	})
}

// TestABeginStaysForTheKeysThatHaveNotEnded: its field goes when all of its keys have, whichever of
// them end twice. A key that is begun and not on record would be new to the next owner, who would
// count no attempt.
func TestABeginStaysForTheKeysThatHaveNotEnded(t *testing.T) {
	for name, end := range map[string]func(w *world, s *Store, r *dedup.ClaimRequest){
		"the same end twice in a batch": func(w *world, s *Store, r *dedup.ClaimRequest) {
			for _, a := range s.Finish(w.Context(), []dedup.Finish{success(r), success(r)}) {
				if a.Err != nil || !a.Held || !a.Written {
					w.Errorf("an end: %+v", a)
				}
			}
		},
		"the same end twice at a time": func(w *world, s *Store, r *dedup.ClaimRequest) {
			s.between = once(func() { w.finish(s, success(r)) })
			w.finish(s, success(r))
		},
		"promoted while it is marked": func(w *world, s *Store, r *dedup.ClaimRequest) {
			danger := dedup.Renewal{ID: r.ID, Token: r.Token, Lease: r.Lease, Hold: r.Hold,
				Danger: true, Window: w.opts.Window}
			s.between = once(func() {
				if a := s.Renew(w.Context(), []dedup.Renewal{danger})[0]; a.Err != nil || !a.Held {
					w.Errorf("Danger: %+v", a)
				}
			})
			w.finish(s, success(r))
		},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				s := w.process()
				o := w.own(s)
				reqs := []dedup.ClaimRequest{request(1), request(2)}
				for _, a := range s.Claim(w.Context(), reqs) {
					w.wants("a new key", a, dedup.Acquired, 1)
				}
				end(w, s, &reqs[0])
				if n := w.begunLeft(o); n != 1 || o.Stats().InFlight != 1 {
					w.Errorf("one of two has ended: %d begins are on record, %d keys in flight",
						n, o.Stats().InFlight)
				}
				w.finish(s, success(&reqs[1]))
				third := request(3)
				w.claim(s, third) // what ended beside a turn goes with the next
				w.finish(s, success(&third))
				if n := w.begunLeft(o); n != 0 || o.Stats().InFlight != 0 {
					w.Errorf("all have ended: %d begins are on record, %d keys in flight",
						n, o.Stats().InFlight)
				}
			})
		})
	}
}

// TestABatchOverManyPartitions: each key is begun and marked in its own, however many there are.
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
	var ends []dedup.Finish
	for round := range 3 {
		var reqs []dedup.ClaimRequest
		for n := range 4 * parts {
			reqs = append(reqs, at(request(1000*round+n), int32(n%parts)))
		}
		ended, claimed := s.FinishClaim(t.Context(), ends, reqs)
		for _, a := range claimed {
			if a.Err != nil || a.Outcome != dedup.Acquired {
				t.Errorf("a new key: %+v", a)
			}
		}
		for _, a := range ended {
			if a.Err != nil || !a.Held || !a.Written {
				t.Errorf("an end: %+v", a)
			}
		}
		ends = ends[:0]
		for i := range reqs {
			ends = append(ends, success(&reqs[i]))
		}
	}
	for _, o := range all {
		left := b.Client.HLen(t.Context(), o.names.run).Val()
		if st := o.Stats(); st.Saved != 12 || st.InFlight != 4 || left != 1 {
			t.Errorf("partition %d: want 12 that were new, the last 4 in flight in one begin, and have %d: %+v", o.part.Number, left, st)
		}
	}
}
