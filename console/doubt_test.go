package console

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// An attempt that ended after MarkIrreversible is uncertain. The overview must not count it as
// released.
func TestUncertainEndsAreNotReleased(t *testing.T) {
	c, err := New(Options{Store: dedup.Memory(10)})
	require.NoError(t, err)
	observer, err := c.Observer("shop", time.Hour)
	require.NoError(t, err)
	d, err := dedup.New(dedup.Memory(100),
		dedup.Config{Namespace: "shop", Window: time.Hour, LeaseTTL: time.Minute,
			Observer: observer})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(t.Context()) })
	for key, danger := range map[string]bool{"a": true, "b": true, "c": false} {
		_, err := dedup.Do(t.Context(), d, key, func(ctx context.Context) (struct{}, error) {
			if danger {
				assert.NoError(t, dedup.MarkIrreversible(ctx))
			}
			return struct{}{}, assert.AnError
		})
		require.ErrorIs(t, err, assert.AnError)
	}
	_, err = d.Claim(t.Context(), "a")
	require.NoError(t, err)
	counts := map[string]string{}
	for _, row := range c.tallies() {
		counts[row.Name] = row.Count
	}
	assert.Equal(t, "1", counts["ended: released"])
	assert.Equal(t, "2", counts["ended: uncertain"])
	assert.Equal(t, "1", counts["found uncertain"])
}

func (c *Console) tallies() []tallyRow {
	var h hour
	for _, s := range c.counted() {
		h.add(s)
	}
	return h.tallies()
}
