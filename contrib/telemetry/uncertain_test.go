package telemetry

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// doubtful is a store with 2,500 uncertain keys, some of which come twice.
type doubtful struct {
	driver.Resolvable
	t   *testing.T
	err error
}

func (d *doubtful) Uncertain(ctx context.Context, cursor string,
	limit int) (page []driver.UncertainRecord, next string, err error) {
	_, bounded := ctx.Deadline()
	assert.True(d.t, bounded, "a collection waits for the store without end")
	for i := range limit {
		page = append(page, driver.UncertainRecord{
			ID:  driver.ID{byte(len(cursor) / 2), byte(i), byte(i >> 8)},
			Age: time.Duration(i) * time.Second})
	}
	if len(cursor) == 5 {
		return page[:500], "", d.err
	}
	return page, cursor + "x", d.err
}

func TestUncertainKeys(t *testing.T) {
	m, collect := observed(t)
	store := &doubtful{t: t}
	require.NoError(t, m.ObserveUncertain(store))
	got := collect()
	assert.EqualValues(t, 3000, got["onceward.dedup.uncertain.keys"])
	assert.EqualValues(t, 999, got["onceward.dedup.uncertain.oldest"])
	assert.EqualValues(t, 0, got["onceward.dedup.uncertain.errors"])
	store.err = errors.New("down")
	got = collect()
	assert.NotContains(t, got, "onceward.dedup.uncertain.keys", "an old count would look like a new one")
	assert.EqualValues(t, 1, got["onceward.dedup.uncertain.errors"])
	require.Error(t, m.ObserveUncertain(store), "a second store")
	require.Error(t, m.ObserveUncertain(struct{ dedup.Store }{}), "a store without a list")
}
