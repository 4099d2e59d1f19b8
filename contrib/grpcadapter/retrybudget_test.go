package grpcadapter_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceward/onceward/contrib/grpcadapter"
	"github.com/onceward/onceward/httpadapter"
)

// newBudget pays for three retries, and after that for one in half an hour.
func newBudget(t *testing.T) *httpadapter.RetryBudget {
	t.Helper()
	budget, err := httpadapter.NewRetryBudget(httpadapter.RetryBudgetConfig{Ratio: 1e-9, Most: 3,
		PerSecond: 1.0 / 1800})
	require.NoError(t, err)
	return budget
}

// A storm of retries by one account is refused. Meanwhile new calls of that account, and the
// retries of another one, continue.
func TestStormOfRetriesIsRefused(t *testing.T) {
	budget := newBudget(t)
	s := newService(t, grpcadapter.Config{RetryBudget: budget}, counted())
	other := []string{"account", "other", grpcadapter.KeyMetadata, "k"}
	wantValue(t, s.call(t.Context(), charge, "k", "v"), "v-1", false)
	wantValue(t, s.send(t.Context(), charge, "v", other...), "v-2", false)
	for range 3 {
		wantValue(t, s.call(t.Context(), charge, "k", "v"), "v-1", true)
	}
	for i := range 20 {
		r := s.call(t.Context(), charge, "k", "v")
		assert.Equal(t, "TOO_MANY_RETRIES", r.reason(), r.err)
		assert.InDelta(t, 1800, r.delay().Seconds(), 600)
		assert.Equal(t, fmt.Sprint((r.delay() + time.Millisecond - 1).Milliseconds()), r.pushback())
		if i < 3 {
			wantValue(t, s.send(t.Context(), charge, "v", other...), "v-2", true)
		}
		fresh := fmt.Sprint("new-", i)
		wantValue(t, s.call(t.Context(), charge, fresh, fresh), fmt.Sprintf("%s-%d", fresh, 3+i),
			false)
	}
	assert.Equal(t, httpadapter.RetryStats{Admitted: 2 + 6 + 20, Retries: 6, Refused: 20},
		budget.Stats())
}

// gRPC marks its own retries. A marked call counts as a retry even if its first attempt has not
// reached the budget.
func TestRetriesOfGRPCAreMarked(t *testing.T) {
	budget := newBudget(t)
	var attempts atomic.Int64
	scope := func(context.Context, string) (string, error) {
		if attempts.Add(1) == 1 {
			return "", errors.New("not now")
		}
		return "acme", nil
	}
	s := newServiceOver(t, newClaimed(t, newDeduper(t, nil)), scope,
		grpcadapter.Config{RetryBudget: budget, RetryAfter: time.Millisecond}, counted(),
		retrying())
	wantValue(t, s.call(t.Context(), charge, "k", "v"), "v-1", false)
	assert.EqualValues(t, 2, attempts.Load())
	assert.Equal(t, httpadapter.RetryStats{Admitted: 1, Retries: 1}, budget.Stats())
}

// A retry that only the Runner finds is answered, and counted.
func TestRetriesThatTheRunnerFinds(t *testing.T) {
	budget, d := newBudget(t), newDeduper(t, nil)
	elsewhere := newServiceOver(t, newClaimed(t, d), byAccount, grpcadapter.Config{}, counted())
	s := newServiceOver(t, newClaimed(t, d), byAccount, grpcadapter.Config{RetryBudget: budget},
		counted())
	for i := range 5 {
		key := fmt.Sprint(i)
		wantValue(t, elsewhere.call(t.Context(), charge, key, "v"), "v-"+fmt.Sprint(i+1), false)
		wantValue(t, s.call(t.Context(), charge, key, "v"), "v-"+fmt.Sprint(i+1), true)
	}
	r := s.call(t.Context(), charge, "0", "v")
	assert.Equal(t, codes.ResourceExhausted, status.Code(r.err))
	assert.Equal(t, "TOO_MANY_RETRIES", r.reason())
	assert.Equal(t, httpadapter.RetryStats{Admitted: 5, Retries: 5, Refused: 1}, budget.Stats())
}
