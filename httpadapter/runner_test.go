package httpadapter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
)

func newDeduper(t *testing.T, change func(*dedup.Config)) *dedup.Deduper {
	t.Helper()
	return newDeduperOver(t, dedup.Memory(10_000), change)
}

func newDeduperOver(t *testing.T, store dedup.Store, change func(*dedup.Config)) *dedup.Deduper {
	t.Helper()
	cfg := dedup.Config{Namespace: "http", Window: 24 * time.Hour, LeaseTTL: 10 * time.Second}
	if change != nil {
		change(&cfg)
	}
	d, err := dedup.New(store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

func newClaimed(t *testing.T, d *dedup.Deduper) httpadapter.Runner {
	t.Helper()
	run, err := httpadapter.Claimed(d)
	require.NoError(t, err)
	return run
}

func wantInputError(t *testing.T, err error, field string) {
	t.Helper()
	var input *dedup.InputError
	require.ErrorAs(t, err, &input)
	assert.Equal(t, field, input.Field)
}

func TestClaimedRefusesWhatAnswersWithoutARecord(t *testing.T) {
	for name, d := range map[string]*dedup.Deduper{
		"nil":          nil,
		"fail open":    newDeduper(t, func(c *dedup.Config) { c.Mode = dedup.FailOpen }),
		"observe only": newDeduper(t, func(c *dedup.Config) { c.Mode = dedup.Observe }),
	} {
		t.Run(name, func(t *testing.T) {
			run, err := httpadapter.Claimed(d)
			wantInputError(t, err, "Deduper")
			assert.True(t, run == nil, "a Runner beside the error")
		})
	}
}

func TestClaimedTellsWhatItKeeps(t *testing.T) {
	run := newClaimed(t, newDeduper(t, func(c *dedup.Config) { c.ResultLimit = 1000 }))
	assert.Equal(t, 24*time.Hour, run.Window())
	assert.Equal(t, 1000, run.ResultLimit())
	limit := newClaimed(t, newDeduper(t, nil)).ResultLimit()
	assert.Equal(t, 256<<10, limit,
		"without one in the Config: the Deduper's default does not show")
	seen := newClaimed(t, newDeduper(t, func(c *dedup.Config) { c.SeenOnly = true }))
	assert.Equal(t, 0, seen.ResultLimit(), "SeenOnly keeps nothing")
}

func TestClaimedRunsOnceAndReplays(t *testing.T) {
	run := newClaimed(t, newDeduper(t, nil))
	runs := 0
	effect := func(ctx context.Context) ([]byte, bool, error) {
		runs++
		a, ok := dedup.FromContext(ctx)
		assert.True(t, ok, "no attempt in the context of the effect")
		assert.Equal(t, "k", a.Key)
		return []byte("done"), true, nil
	}
	for i, want := range []driver.Outcome{dedup.Acquired, dedup.Duplicate} {
		res, err := run.Run(t.Context(), "k", effect, dedup.WithScope("a"))
		require.NoError(t, err, "call %d", i)
		assert.Equal(t, want, res.Outcome, "call %d", i)
		assert.Equal(t, []byte("done"), res.Value, "call %d", i)
	}
	_, err := run.Run(t.Context(), "k", effect, dedup.WithScope("b"))
	assert.NoError(t, err)
	assert.Equal(t, 2, runs, "another scope")
}

func TestClaimedKeepsNothingOfAnError(t *testing.T) {
	run := newClaimed(t, newDeduper(t, nil))
	failed := errors.New("failed")
	_, err := run.Run(t.Context(), "k", func(context.Context) ([]byte, bool, error) {
		return []byte("half"), false, failed
	})
	assert.ErrorIs(t, err, failed)
	res, err := run.Run(t.Context(), "k", func(context.Context) ([]byte, bool, error) {
		return []byte("whole"), false, nil
	})
	require.NoError(t, err)
	assert.Equal(t, dedup.Acquired, res.Outcome, "the retry")
	assert.Equal(t, 2, res.Attempt)
	assert.Equal(t, "whole", string(res.Value))
}

// A key that an operator has marked is done, without a result.
func TestClaimedOfAMarkedKeyHasNoResult(t *testing.T) {
	d := newDeduper(t, nil)
	_, err := d.Mark(t.Context(), "k")
	require.NoError(t, err)
	res, err := newClaimed(t, d).Run(t.Context(), "k", func(context.Context) ([]byte, bool, error) {
		t.Error("ran")
		return []byte{1}, false, nil
	})
	assert.ErrorIs(t, err, dedup.ErrNoResult)
	assert.Equal(t, dedup.Duplicate, res.Outcome)
	assert.Nil(t, res.Value)
}

func TestClaimedRefusesANilEffect(t *testing.T) {
	_, err := newClaimed(t, newDeduper(t, nil)).Run(t.Context(), "k", nil)
	wantInputError(t, err, "Effect")
}
