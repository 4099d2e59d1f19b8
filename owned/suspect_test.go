package owned

import (
	"testing"

	"github.com/onceward/onceward/dedup"
)

// begins insists on how many are on record, and how many suspects there are.
func (w *world) begins(when string, o *Ownership, fields int64, suspects int) {
	w.Helper()
	n, st := w.client.HLen(w.Context(), o.names.run).Val(), o.Stats()
	if n != fields || st.Suspects != suspects {
		w.Errorf("%s: %d begins on record, want %d; %d suspects, want %d", when, n, fields, st.Suspects, suspects)
	}
}

// TestSuspectsGoAfterTheHold: an attempt that died is forgotten a Hold after it began, also where the owner lives
// for longer, and leaves the record: another partition of a shared source would find it begun for ever.
func TestSuspectsGoAfterTheHold(t *testing.T) {
	story(t, func(w *world) {
		dead := w.process()
		w.own(dead)
		w.wants("a new key", w.claim(dead, request(1)), dedup.Acquired, 1)
		w.crash(dead)
		pass(w.opts.Lease)
		s := w.process()
		o := w.own(s)

		both := []dedup.ClaimRequest{request(2), request(3)} // one batch
		for _, a := range s.Claim(w.Context(), both) {
			w.wants("a new key", a, dedup.Acquired, 1)
		}
		lives := success(&both[1])
		lives.State, lives.Landed = dedup.StateInProgress, false
		pass(storyLease)
		w.wants("its lease is over", w.claim(s, request(2)), dedup.Acquired, 2)
		w.begins("at first", o, 2, 2)
		renew := func() {
			w.Helper()
			if a := s.Renew(w.Context(), []dedup.Change{lives})[0]; !a.Held {
				w.Fatalf("renewed: %+v", a)
			}
		}
		renew()
		for range int(storyHold/storyLease) + 2 {
			pass(storyLease / 2)
			renew()
			pass(storyLease / 2)
			renew()
		}
		pass(w.opts.Lease)
		w.begins("after the hold", o, 1, 0)
		w.wants("the key that died with its process", w.claim(s, request(1)), dedup.Acquired, 1)
		lives.State, lives.Landed = dedup.StateSucceeded, true
		w.finish(s, lives)
		w.begins("when the batch has ended", o, 1, 0) // of the key that has just begun
	})
}
