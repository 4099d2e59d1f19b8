package deduptest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
)

// Wrapper fails a wrapper around a store, such as one that traces its calls, that hides what the
// store can do besides. Each optional interface of package dedup has to be there, and its calls
// have to reach the store below. wrap puts the wrapper around a store.
func Wrapper(t testing.TB, wrap func(dedup.Store) dedup.Store) {
	t.Helper()
	inner := &capable{Store: dedup.Memory(16), limits: dedup.Limits{Window: 2 * time.Hour,
		MaxHold: time.Hour, NoResults: true, NoFailures: true}}
	store := wrap(inner)
	if got := dedup.LimitsOf(store); got != inner.limits {
		t.Errorf("Limiter: the limits of the wrapper are %+v, and those below %+v: New cannot refuse what the store below refuses when the effect has happened",
			got, inner.limits)
	}
	if s, ok := store.(dedup.FinishClaimer); !ok {
		t.Error("FinishClaimer: hidden by the wrapper: every batch takes two round trips")
	} else {
		inner.wantCalls(t, s)
	}
	if s, ok := store.(dedup.ForgetCounter); !ok {
		t.Error("ForgetCounter: hidden by the wrapper: a forgotten key is answered from caches for a minute")
	} else {
		inner.wantNumbers(t, s)
	}
	if s, ok := store.(dedup.Recycler); !ok {
		t.Error("Recycler: hidden by the wrapper: the slice of every answer is garbage")
	} else if s.Recycle(make([]dedup.Answer, 1)); inner.recycled != 1 {
		t.Error("Recycler: what the wrapper got back has not reached the store below")
	}
}

// capable is a store that has all the optional interfaces.
type capable struct {
	dedup.Store
	limits   dedup.Limits
	ended    []dedup.Finish
	claimed  []dedup.ClaimRequest
	forgets  uint64
	recycled int
}

func (c *capable) Limits() dedup.Limits { return c.limits }

func (c *capable) FinishClaim(_ context.Context, ends []dedup.Finish,
	reqs []dedup.ClaimRequest) (ended, claimed []dedup.Answer) {
	c.ended, c.claimed = slices.Clone(ends), slices.Clone(reqs)
	return []dedup.Answer{{Written: true}}, []dedup.Answer{{Outcome: dedup.InFlight}}
}

func (c *capable) Forgets(context.Context) (uint64, error) { return c.forgets, nil }

func (c *capable) Recycle([]dedup.Answer) { c.recycled++ }

func (c *capable) wantCalls(t testing.TB, s dedup.FinishClaimer) {
	t.Helper()
	end, req := dedup.Finish{ID: dedup.ID{1}}, dedup.ClaimRequest{ID: dedup.ID{2}}
	ended, claimed := s.FinishClaim(t.Context(), []dedup.Finish{end}, []dedup.ClaimRequest{req})
	if len(c.ended) != 1 || c.ended[0].ID != end.ID || len(c.claimed) != 1 ||
		c.claimed[0].ID != req.ID {
		t.Errorf("FinishClaimer: %d ends and %d requests have reached the store below, want those that the wrapper got, one of each",
			len(c.ended), len(c.claimed))
	}
	if len(ended) != 1 || !ended[0].Written || len(claimed) != 1 ||
		claimed[0].Outcome != dedup.InFlight {
		t.Errorf("FinishClaimer: the answers of the wrapper are not those of the store below")
	}
}

func (c *capable) wantNumbers(t testing.TB, s dedup.ForgetCounter) {
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
