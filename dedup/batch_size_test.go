package dedup_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

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
		if err != nil {
			t.Fatal(err)
		}
		done := make([]dedup.Completion, keys)
		for i, c := range claims {
			if c.Outcome != dedup.Acquired || c.Key != reqs[i].Key {
				t.Fatalf("claim %d: %v of %s", i, c.Outcome, c.Key)
			}
			_, stop := c.KeepAlive(t.Context())
			defer stop()
			done[i] = dedup.Completion{Claim: c, Result: []byte(c.Key)}
		}
		time.Sleep(25 * time.Second) // a few renewals
		if errs := d.CompleteBatch(t.Context(), done); errs != nil {
			t.Fatal(errs[0])
		}
		renewals := 0
		for _, c := range store.calls {
			if c.items > most {
				t.Errorf("%s of %d items in one call", c.method, c.items)
			}
			if c.method == "Renew" {
				renewals += c.items
			}
		}
		if renewals < 2*keys {
			t.Errorf("%d renewals of %d claims", renewals, keys)
		}
		rec, err := d.Lookup(context.Background(), reqs[keys-1].Key)
		if err != nil || string(rec.Result) != reqs[keys-1].Key {
			t.Errorf("the last of the batch is %+v, %v", rec, err)
		}
	})
}
