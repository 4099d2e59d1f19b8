package layered_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
)

// unsent is the error of a call that was not made, as that of a circuit breaker.
type unsent struct{}

func (unsent) Error() string { return "not sent" }
func (unsent) NotSent() bool { return true }

// closed is a store that cannot be reached.
type closed struct{ dedup.Store }

func (closed) Claim(_ context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := make([]driver.Answer, len(reqs))
	for i := range answers {
		answers[i].Err = unsent{}
	}
	return answers
}

// The Deduper does not release a claim that was not sent. So Moving gives back the half that was
// won at once, and does not hold it until it lapses.
func TestMovingGivesBackWhatWasHalfSent(t *testing.T) {
	lead := dedup.Memory(10)
	store, err := layered.Moving(lead, closed{dedup.Memory(10)})
	require.NoError(t, err)
	req := driver.ClaimRequest{ID: driver.ID{1}, Token: driver.Token{1}, Lease: time.Minute}
	ans := store.Claim(t.Context(), []driver.ClaimRequest{req})[0]
	require.ErrorIs(t, ans.Err, unsent{})
	req.Token = driver.Token{2}
	ans = lead.Claim(t.Context(), []driver.ClaimRequest{req})[0]
	require.NoError(t, ans.Err)
	assert.Equal(t, dedup.Acquired, ans.Outcome, "the next caller waits for a claim of nobody")
	assert.Equal(t, 1, ans.Record.Attempt)
}

// The pair has the limits of both stores: it refuses a request that one of them refuses.
func TestMovingHasTheLimitsOfBoth(t *testing.T) {
	a := narrow{dedup.Memory(1), driver.Limits{MaxHold: time.Hour, MinHold: time.Second,
		MaxLease: time.Minute, NoResults: true}}
	b := narrow{dedup.Memory(1), driver.Limits{MaxHold: time.Minute, MinHold: 2 * time.Second,
		Window: time.Hour, NoFailures: true}}
	want := driver.Limits{MaxHold: time.Minute, MinHold: 2 * time.Second, MaxLease: time.Minute,
		Window: time.Hour, NoResults: true, NoFailures: true}
	for _, pair := range [][2]dedup.Store{{a, b}, {b, a}} {
		store, err := layered.Moving(pair[0], pair[1])
		require.NoError(t, err)
		assert.Equal(t, want, driver.LimitsOf(store))
	}
}

type narrow struct {
	dedup.Store
	limits driver.Limits
}

func (n narrow) Limits() driver.Limits { return n.limits }
