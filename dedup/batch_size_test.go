package dedup_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// However many keys a caller has, no call of the store is so large that it cannot be
// answered in time; and each item keeps its own answer.
func TestStoreCallsAreBounded(t *testing.T) {
	const keys, most = 3000, 1024
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		reqs := make([]dedup.Request, keys)
		for i := range reqs {
			reqs[i].Key = fmt.Sprint("key-", i)
		}
		claims, err := d.ClaimBatch(t.Context(), reqs)
		require.NoError(t, err)
		done := make([]dedup.Completion, keys)
		for i, c := range claims {
			require.Equal(t, dedup.Acquired, c.Outcome, "claim %d", i)
			require.Equal(t, reqs[i].Key, c.Key, "claim %d", i)
			_, stop := c.KeepAlive(t.Context())
			defer stop()
			done[i] = dedup.Completion{Claim: c, Result: []byte(c.Key)}
		}
		time.Sleep(25 * time.Second) // a few renewals
		require.Nil(t, d.CompleteBatch(t.Context(), done))
		renewals := 0
		for _, c := range store.calls {
			assert.LessOrEqual(t, c.items, most, c.method)
			if c.method == "Renew" {
				renewals += c.items
			}
		}
		assert.GreaterOrEqual(t, renewals, 2*keys)
		rec, err := d.Lookup(context.Background(), reqs[keys-1].Key)
		require.NoError(t, err)
		assert.Equal(t, reqs[keys-1].Key, string(rec.Result), "the last of the batch")
	})
}
