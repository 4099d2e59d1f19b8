package deduptest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// Wrapper tests a wrapper around a store, such as one that traces its calls. It fails a wrapper
// that hides what else the store can do. Each optional interface of package driver has to be there,
// and its calls have to reach the store below. wrap puts the wrapper around a store.
func Wrapper(t testing.TB, wrap func(driver.Store) driver.Store) {
	t.Helper()
	inner := &capable{Store: dedup.Memory(16), limits: driver.Limits{Window: 2 * time.Hour,
		MaxHold: time.Hour, NoResults: true, NoFailures: true}}
	store := wrap(inner)
	if got := driver.LimitsOf(store); got != inner.limits {
		t.Errorf("Limiter: the limits of the wrapper are %+v, and those below %+v: New cannot refuse what the store below refuses when the effect has happened",
			got, inner.limits)
	}
	if s, ok := store.(driver.FinishClaimer); !ok {
		t.Error("FinishClaimer: hidden by the wrapper: every batch takes two round trips")
	} else {
		inner.wantCalls(t, s)
	}
	if s, ok := store.(driver.ForgetCounter); !ok {
		t.Error("ForgetCounter: hidden by the wrapper: a forgotten key is answered from caches for a minute")
	} else {
		inner.wantNumbers(t, s)
	}
	if s, ok := store.(driver.Waker); !ok {
		t.Error("Waker: hidden by the wrapper: waiters of other processes learn of an end a second later")
	} else {
		inner.wantNews(t, s)
	}
	if s, ok := store.(driver.Recycler); !ok {
		t.Error("Recycler: hidden by the wrapper: the slice of every answer is garbage")
	} else if s.Recycle(make([]driver.Answer, 1)); inner.recycled != 1 {
		t.Error("Recycler: what the wrapper got back has not reached the store below")
	}
}

// capable is a store that has all the optional interfaces.
type capable struct {
	driver.Store
	limits   driver.Limits
	ended    []driver.Finish
	claimed  []driver.ClaimRequest
	forgets  uint64
	recycled int
	news     []driver.ID // by Wake, then by Listen
}

func (c *capable) Limits() driver.Limits { return c.limits }

func (c *capable) FinishClaim(_ context.Context, ends []driver.Finish,
	reqs []driver.ClaimRequest) (ended, claimed []driver.Answer) {
	c.ended, c.claimed = slices.Clone(ends), slices.Clone(reqs)
	return []driver.Answer{{Written: true}}, []driver.Answer{{Outcome: driver.InFlight}}
}

func (c *capable) Forgets(context.Context) (uint64, error) { return c.forgets, nil }

func (c *capable) Wake(_ context.Context, ids []driver.ID) error {
	c.news = append(c.news, ids...)
	return nil
}

func (c *capable) Listen(_ context.Context, id driver.ID, woken func()) (stop func(), err error) {
	c.news = append(c.news, id)
	woken()
	return func() {}, nil
}

func (c *capable) wantNews(t testing.TB, s driver.Waker) {
	t.Helper()
	told, listened, woken := driver.ID{1}, driver.ID{2}, false
	err := s.Wake(t.Context(), []driver.ID{told})
	stop, err2 := s.Listen(t.Context(), listened, func() { woken = true })
	if err != nil || err2 != nil || stop == nil || !woken ||
		!slices.Equal(c.news, []driver.ID{told, listened}) {
		t.Errorf("Waker: Wake and Listen of the wrapper do not reach the store below: %v, %v", err,
			err2)
	}
}

func (c *capable) Recycle([]driver.Answer) { c.recycled++ }

func (c *capable) wantCalls(t testing.TB, s driver.FinishClaimer) {
	t.Helper()
	end, req := driver.Finish{ID: driver.ID{1}}, driver.ClaimRequest{ID: driver.ID{2}}
	ended, claimed := s.FinishClaim(t.Context(), []driver.Finish{end}, []driver.ClaimRequest{req})
	if len(c.ended) != 1 || c.ended[0].ID != end.ID || len(c.claimed) != 1 ||
		c.claimed[0].ID != req.ID {
		t.Errorf("FinishClaimer: %d ends and %d requests have reached the store below, want those that the wrapper got, one of each",
			len(c.ended), len(c.claimed))
	}
	if len(ended) != 1 || !ended[0].Written || len(claimed) != 1 ||
		claimed[0].Outcome != driver.InFlight {
		t.Errorf("FinishClaimer: the answers of the wrapper are not those of the store below")
	}
}

func (c *capable) wantNumbers(t testing.TB, s driver.ForgetCounter) {
	t.Helper()
	seen := make(map[uint64]bool)
	for c.forgets = range 3 {
		n, err := s.Forgets(t.Context())
		if err != nil || seen[n] {
			t.Errorf("ForgetCounter: the wrapper answers %d, %v; the store below has another number",
				n, err)
		}
		seen[n] = true
	}
}
