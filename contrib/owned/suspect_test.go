package owned

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// begins requires the number of fields of begins on record, and the number of suspects.
func (w *world) begins(when string, o *Ownership, fields int64, suspects int) {
	w.Helper()
	n, st := w.client.HLen(w.Context(), o.names.run).Val(), o.Stats()
	assert.Equal(w, fields, n, when)
	assert.Equal(w, suspects, st.Suspects, when)
}

// TestSuspectsGoAfterTheHold: an attempt that died is forgotten a Hold after it began, even if the
// owner lives longer, and its begin is deleted. Otherwise another partition of a shared source
// would find it begun forever.
func TestSuspectsGoAfterTheHold(t *testing.T) {
	story(t, func(w *world) {
		dead := w.process()
		w.own(dead)
		w.wants("a new key", w.claim(dead, request(1)), dedup.Acquired, 1)
		w.crash(dead)
		pass(w.opts.Lease)
		s := w.process()
		o := w.own(s)

		both := []driver.ClaimRequest{request(2), request(3)} // one batch
		for _, a := range s.Claim(w.Context(), both) {
			w.wants("a new key", a, dedup.Acquired, 1)
		}
		lives := driver.Renewal{ID: both[1].ID, Token: both[1].Token, Lease: both[1].Lease,
			Hold: both[1].Hold}
		pass(storyLease)
		w.wants("its lease is over", w.claim(s, request(2)), dedup.Acquired, 2)
		w.begins("at first", o, 2, 2)
		renew := func() {
			w.Helper()
			a := s.Renew(w.Context(), []driver.Renewal{lives})[0]
			require.True(w, a.Held, "renewed: %+v", a)
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
		w.finish(s, success(&both[1]))
		w.begins("when the batch has ended", o, 1, 0) // of the key that has just begun
	})
}

// of acquires one of two partitions of the stories' source, and waits for its filter.
func (w *world) of(s *Store, number int32) *Ownership {
	w.Helper()
	o, err := s.Acquire(w.Context(),
		Partition{Source: only.Source, Number: number, Count: 2, Generation: 1})
	must(w, err)
	synctest.Wait()
	return o
}

// requestIn is a request of a key in one of them.
func requestIn(number int32, n int) driver.ClaimRequest {
	r := request(n)
	r.Origin.Partition = number
	return r
}

// TestOnlyNewMeetsASuspectOfAnotherPartition: a claim ahead of time does not take a key that died
// elsewhere, and counts no attempt: the key may kill its process, so it must run alone.
func TestOnlyNewMeetsASuspectOfAnotherPartition(t *testing.T) {
	story(t, func(w *world) {
		dead, s := w.process(), w.process()
		w.of(dead, 1)
		w.wants("a new key", w.claim(dead, requestIn(1, 1)), dedup.Acquired, 1)
		w.crash(dead)
		pass(w.opts.Lease)
		o := w.of(s, 0)
		must(w, o.Misplaced(w.Context()))
		for range 2 {
			ahead := requestIn(0, 1)
			ahead.OnlyNew = true
			a := w.claim(s, ahead)
			w.wants("claimed ahead", a, dedup.InFlight, 1)
			assert.True(w, a.Record.Remaining <= 0, "nobody is in the way, and Remaining is %v",
				a.Record.Remaining)
		}
		ahead := requestIn(0, 2)
		ahead.OnlyNew = true
		w.wants("a key that nobody has begun", w.claim(s, ahead), dedup.Acquired, 1)
		r := requestIn(0, 1)
		w.wants("in its turn", w.claim(s, r), dedup.Acquired, 2)
		a := w.finish(s, success(&r))
		assert.True(w, a.Held && a.Written, "its end: %+v", a)
	})
}
