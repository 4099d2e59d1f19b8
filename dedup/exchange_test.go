package dedup_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// swapper is a hooked store with FinishClaim. trips counts its calls, and lose makes the
// first of them lose its reply or break.
type swapper struct {
	*hooked
	trips int
	lose  func() error
}

func (s *swapper) FinishClaim(ctx context.Context, changes []driver.Finish,
	reqs []driver.ClaimRequest) (ended, claimed []driver.Answer) {
	s.trips++
	ended, claimed = s.inner.Finish(ctx, changes), s.inner.Claim(ctx, reqs)
	if s.trips > 1 || s.lose == nil {
		return ended, claimed
	}
	if err := s.lose(); err != nil {
		for i := range ended {
			ended[i] = driver.Answer{Err: err}
		}
		for i := range claimed {
			claimed[i] = driver.Answer{Err: err}
		}
	}
	return ended, claimed
}

func requests(from, to int) []dedup.Request {
	var reqs []dedup.Request
	for n := from; n < to; n++ {
		reqs = append(reqs, dedup.Request{Key: fmt.Sprint("key ", n)})
	}
	return reqs
}

func completions(claims []*dedup.Claim) []dedup.Completion {
	var done []dedup.Completion
	for _, c := range claims {
		done = append(done, dedup.Completion{Claim: c})
	}
	return done
}

// pump sends n batches of ten through CompleteAndClaim and ends the last one.
func pump(t *testing.T, d *dedup.Deduper, n int) {
	t.Helper()
	var done []dedup.Completion
	for batch := range n {
		errs, claims, err := d.CompleteAndClaim(t.Context(), done, requests(10*batch, 10*batch+10))
		require.Nil(t, errs, "batch %d", batch)
		require.NoError(t, err, "batch %d", batch)
		for _, c := range claims {
			require.Equal(t, dedup.Acquired, c.Outcome, "batch %d", batch)
			require.Equal(t, 1, c.Attempt, "batch %d", batch)
		}
		done = completions(claims)
	}
	errs, claims, err := d.CompleteAndClaim(t.Context(), done, nil)
	require.Nil(t, errs, "the last")
	require.NoError(t, err)
	require.Empty(t, claims)
	for n := range 10 * n {
		seen, err := d.Seen(t.Context(), fmt.Sprint("key ", n))
		require.NoError(t, err, "key %d is done", n)
		require.True(t, seen, "key %d is done", n)
	}
}

func TestCompleteAndClaim(t *testing.T) {
	t.Run("a store without it", func(t *testing.T) {
		pump(t, newDeduper(t, dedup.Memory(1000), nil), 4)
	})
	t.Run("one round trip for both", func(t *testing.T) {
		s := &swapper{hooked: hook()}
		pump(t, newDeduper(t, s, nil), 4)
		claims, ends := len(s.of("Claim")), len(s.of("Finish"))
		assert.Equal(t, 3, s.trips, "round trips of 4 batches")
		assert.Equal(t, 1, claims)
		assert.Equal(t, 1, ends)
	})
	t.Run("a lost reply is asked for again", func(t *testing.T) {
		s := &swapper{hooked: hook(), lose: func() error { return errNet }}
		pump(t, newDeduper(t, s, nil), 4)
		claims, ends := len(s.of("Claim")), len(s.of("Finish"))
		assert.Equal(t, 2, claims)
		assert.Equal(t, 2, ends)
	})
	t.Run("nothing to send", func(t *testing.T) {
		s := &swapper{hooked: hook()}
		d := newDeduper(t, s, nil)
		errs, claims, err := d.CompleteAndClaim(t.Context(), []dedup.Completion{{}}, requests(0, 1))
		var input *dedup.InputError
		require.Len(t, errs, 1, "a nil claim beside a good request")
		assert.ErrorAs(t, errs[0], &input)
		require.NoError(t, err)
		assert.Equal(t, dedup.Acquired, claims[0].Outcome)
		errs, claims, err = d.CompleteAndClaim(t.Context(), completions(claims),
			[]dedup.Request{{Key: ""}})
		assert.Nil(t, errs, "a good claim beside a bad request")
		require.NoError(t, err)
		assert.ErrorAs(t, claims[0].Err(), &input)
	})
}

// TestCompleteAndClaimAfterClose prevents the last batch from staying unrecorded.
func TestCompleteAndClaimAfterClose(t *testing.T) {
	d := newDeduper(t, &swapper{hooked: hook()}, nil)
	claims, err := d.ClaimBatch(t.Context(), requests(0, 3))
	require.NoError(t, err)
	require.NoError(t, d.Close(t.Context()))
	errs, next, err := d.CompleteAndClaim(t.Context(), completions(claims), requests(3, 6))
	assert.Nil(t, errs, "after Close")
	assert.Nil(t, next)
	assert.ErrorIs(t, err, dedup.ErrClosed)
	for _, c := range claims {
		assert.NoError(t, c.Complete(t.Context(), nil), "%s was not recorded", c.Key)
	}
}

// TestCompleteAndClaimPanic prevents a store that panics from leaving a goroutine, and so
// Close, waiting forever.
func TestCompleteAndClaimPanic(t *testing.T) {
	s := &swapper{hooked: hook(), lose: func() error { panic("store") }}
	d := newDeduper(t, s, nil)
	claims, err := d.ClaimBatch(t.Context(), requests(0, 3))
	require.NoError(t, err)
	func() {
		defer func() {
			assert.NotNil(t, recover(), "the panic was swallowed")
		}()
		_, _, _ = d.CompleteAndClaim(t.Context(), completions(claims), requests(3, 6))
	}()
	assert.NoError(t, d.Close(t.Context()))
}

// A panic while the claims are ended reaches the caller, who can recover, as in CompleteBatch.
func TestCompleteAndClaimPanicsInItsCaller(t *testing.T) {
	for name, s := range map[string]*swapper{
		"observer": {hooked: hook()},
		"store":    {hooked: hook(), lose: func() error { return errNet }},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeduper(t, s, func(c *dedup.Config) {
				if name == "observer" {
					c.Observer.Ended = func(dedup.Event) { panic(name) }
				}
			})
			claims, err := d.ClaimBatch(t.Context(), requests(0, 3))
			require.NoError(t, err)
			if name == "store" {
				s.setBefore(only("Finish", func(call) error { panic(name) }))
			}
			defer func() {
				v := recover()
				assert.NotNil(t, v)
				assert.Contains(t, fmt.Sprint(v), name)
			}()
			_, _, err = d.CompleteAndClaim(t.Context(), completions(claims), requests(3, 6))
			t.Errorf("returned %v", err)
		})
	}
}
