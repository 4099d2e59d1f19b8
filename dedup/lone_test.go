package dedup

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
)

// steady is a store that allocates nothing: every claim is won, every end is held.
type steady struct {
	Store
	claimed, ended [1]driver.Answer
}

func (s *steady) Claim(context.Context,
	[]driver.ClaimRequest) []driver.Answer {
	return s.claimed[:]
}
func (s *steady) Finish(context.Context, []driver.Finish) []driver.Answer { return s.ended[:] }

func newSteady() *steady {
	s := &steady{}
	s.claimed[0] = driver.Answer{Outcome: Acquired,
		Record: Record{State: driver.StateInProgress, Attempt: 1, Fence: 1}}
	s.ended[0] = driver.Answer{Held: true, Written: true}
	return s
}

// A lone claim and completion allocate only what is kept, and nothing for a second try.
func TestLoneCycleAllocatesWhatIsKept(t *testing.T) {
	d, err := New(newSteady(), Config{Namespace: "test", Window: time.Hour, LeaseTTL: time.Minute})
	require.NoError(t, err)
	ctx := t.Context()
	got := testing.AllocsPerRun(100, func() {
		c, err := d.Claim(ctx, "key")
		require.NoError(t, err)
		require.Equal(t, Acquired, c.Outcome)
		require.NoError(t, c.Complete(ctx, nil))
	})
	// The request as asked, the attempt that others may join, the claim with the request
	// as sent, the change, and a context for each of the two calls.
	assert.LessOrEqual(t, got, 7.0) // one more under the race detector
}

// Do also allocates what its handler sees, and a context that does not end with the caller's.
func TestLoneDoAllocatesWhatIsKept(t *testing.T) {
	d, err := New(newSteady(), Config{Namespace: "test", Window: time.Hour, LeaseTTL: time.Minute})
	require.NoError(t, err)
	ctx := t.Context()
	effect := func(context.Context) (struct{}, error) { return struct{}{}, nil }
	got := testing.AllocsPerRun(100, func() {
		_, err := Do(ctx, d, "key", effect)
		require.NoError(t, err)
	})
	// Beyond a claim and its completion: the claim that is kept alive with its context, the
	// context of the end, and its parent, which the caller does not cancel.
	assert.LessOrEqual(t, got, 9.0) // one more than without the race detector
}
