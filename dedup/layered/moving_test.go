package layered_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/layered"
)

// unsent is the error of a call that was not made, as that of a circuit breaker.
type unsent struct{}

func (unsent) Error() string { return "not sent" }
func (unsent) NotSent() bool { return true }

// closed is a store that cannot be reached.
type closed struct{ dedup.Store }

func (closed) Claim(_ context.Context, reqs []dedup.ClaimRequest) []dedup.Answer {
	answers := make([]dedup.Answer, len(reqs))
	for i := range answers {
		answers[i].Err = unsent{}
	}
	return answers
}

// The core gives nothing back of a claim that was not sent: so the half that was won is given back
// at once, and not held until it lapses.
func TestMovingGivesBackWhatWasHalfSent(t *testing.T) {
	lead := dedup.Memory(10)
	store, err := layered.Moving(lead, closed{dedup.Memory(10)})
	require.NoError(t, err)
	req := dedup.ClaimRequest{ID: dedup.ID{1}, Token: dedup.Token{1}, Lease: time.Minute}
	ans := store.Claim(t.Context(), []dedup.ClaimRequest{req})[0]
	require.ErrorIs(t, ans.Err, unsent{})
	req.Token = dedup.Token{2}
	ans = lead.Claim(t.Context(), []dedup.ClaimRequest{req})[0]
	require.NoError(t, ans.Err)
	assert.Equal(t, dedup.Acquired, ans.Outcome, "the next caller waits for a claim of nobody")
	assert.Equal(t, 1, ans.Record.Attempt)
}

// Both are asked for what they cannot do, and what one cannot do the two cannot do either.
func TestMovingHasTheLimitsOfBoth(t *testing.T) {
	a := narrow{dedup.Memory(1), dedup.Limits{MaxHold: time.Hour, MinHold: time.Second,
		MaxLease: time.Minute, NoResults: true}}
	b := narrow{dedup.Memory(1), dedup.Limits{MaxHold: time.Minute, MinHold: 2 * time.Second,
		Window: time.Hour, NoFailures: true}}
	want := dedup.Limits{MaxHold: time.Minute, MinHold: 2 * time.Second, MaxLease: time.Minute,
		Window: time.Hour, NoResults: true, NoFailures: true}
	for _, pair := range [][2]dedup.Store{{a, b}, {b, a}} {
		store, err := layered.Moving(pair[0], pair[1])
		require.NoError(t, err)
		assert.Equal(t, want, dedup.LimitsOf(store))
	}
}

type narrow struct {
	dedup.Store
	limits dedup.Limits
}

func (n narrow) Limits() dedup.Limits { return n.limits }
