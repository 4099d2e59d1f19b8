package dedup_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// A caller can read the Config in force from a Deduper, defaults included, and cannot change it
// through the copy that it gets.
func TestConfigShowsWhatIsInForce(t *testing.T) {
	d, err := dedup.New(dedup.Memory(10),
		dedup.Config{Namespace: "ns", Window: time.Hour, LeaseTTL: time.Second, SeenOnly: true})
	require.NoError(t, err)
	got := d.Config()
	assert.Equal(t, "ns", got.Namespace, "what was given is not there")
	assert.Equal(t, time.Hour, got.Window)
	assert.Equal(t, time.Second, got.LeaseTTL)
	assert.True(t, got.SeenOnly, "what was given is not there: %+v", got)
	assert.Equal(t, time.Hour, got.Hold, "defaults are not filled")
	assert.Equal(t, 256<<10, got.ResultLimit)
	assert.Equal(t, time.Second/3, got.StoreTimeout)
	assert.Equal(t, 1000, got.MaxWaiters)
	assert.NotNil(t, got.Logger)
	got.Window = time.Minute
	assert.Equal(t, time.Hour, d.Config().Window, "a change of the copy is in force")
}
