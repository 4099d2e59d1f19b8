//go:build long

package redisadapter_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter"
)

// TestTenMillionKeys needs some minutes, and 200 MB for its server. ONCEWARD_KEYS is the
// number of keys, if not ten million. All of them are claimed as never seen, and so are
// as many again afterwards.
func TestTenMillionKeys(t *testing.T) {
	n := 10_000_000
	if text := os.Getenv("ONCEWARD_KEYS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	perKey, store := bytesPerKey(t, redisadapter.Compact, n)
	assert.LessOrEqual(t, perKey, 10.0, "bytes per key")
	fresh := 0
	for first := n; first < 2*n; first += batchSize {
		fresh += freshOf(t, store, first)
	}
	assert.Equal(t, (n+batchSize-1)/batchSize*batchSize, fresh, "keys that were never seen")
	fmt.Fprintf(os.Stderr,
		"%d keys: %.2f bytes per key; %d lookups of fresh keys without a false duplicate\n",
		n, perKey, fresh)
}

// freshOf looks a batch up that begins with key first, and counts what was never seen.
func freshOf(t *testing.T, store *redisadapter.Store, first int) (fresh int) {
	ids := make([]driver.ID, batchSize)
	for i := range ids {
		ids[i] = numbered(first + i)
	}
	for _, a := range store.Lookup(t.Context(), ids) {
		require.NoError(t, a.Err)
		if a.Record.State == driver.StateAbsent {
			fresh++
		}
	}
	return fresh
}
