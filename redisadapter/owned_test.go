package redisadapter_test

import (
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// TestOwnedIsAgreed prevents a consumer that claims each key from running beside an owner
// that claims none.
func TestOwnedIsAgreed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		forgetLayout(t, b)
		shared := redisadapter.Options{Prefix: b.Prefix}
		owned := redisadapter.Options{Prefix: b.Prefix, Owned: true}
		for range 2 {
			_, err := redisadapter.New(t.Context(), b.Client, owned)
			must(t, err)
		}
		wantOtherLayout(t, b, shared, "owned is 1, and Options say not set")
		must(t, b.Client.Del(t.Context(), b.Prefix+":layout").Err())
		_, err := redisadapter.New(t.Context(), b.Client, shared)
		must(t, err)
		wantOtherLayout(t, b, owned, "owned is not set, and Options say 1")
	})
}

// TestOwnedIsWithheld prevents the use of a store past the one that wraps it.
func TestOwnedIsWithheld(t *testing.T) {
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			b := redistest.Open(t, "miniredis")
			opts := layoutOptions(b.Prefix, layout)
			opts.Owned = true
			store, err := redisadapter.New(t.Context(), b.Client, opts)
			must(t, err)
			ctx, id := t.Context(), request(1).ID
			done := change(1, dedup.StateSucceeded)
			finished, claimed := store.FinishClaim(ctx, []dedup.Finish{done},
				[]dedup.ClaimRequest{request(1)})
			_, forgets := store.Forgets(ctx)
			_, list := store.List(ctx, redisadapter.ListOptions{})
			for name, err := range map[string]error{
				"Claim":                claimOne(t, store, 1).Err,
				"Renew":                store.Renew(ctx, []dedup.Renewal{renewalOf(done)})[0].Err,
				"Finish":               store.Finish(ctx, []dedup.Finish{done})[0].Err,
				"Lookup":               store.Lookup(ctx, []dedup.ID{id})[0].Err,
				"Forget":               store.Forget(ctx, []dedup.ID{id}, time.Minute)[0],
				"FinishClaim":          finished[0].Err,
				"claim of FinishClaim": claimed[0].Err, "Forgets": forgets, "List": list,
			} {
				if wantInput(t, err, "Options.Owned"); dedup.CanRetry(err) {
					t.Errorf("%s: %v is worth a retry", name, err)
				}
			}
			if keys := b.Client.Keys(ctx, b.Prefix+"*").Val(); len(keys) != 1 {
				t.Errorf("keys %q: want the layout alone", keys)
			}
			must(t, store.Own())
			must(t, store.Own())
			wantOutcome(t, store, 1, dedup.Acquired)
		})
	}
}

func TestOwnNeedsOwned(t *testing.T) {
	b := redistest.Open(t, "miniredis")
	store, err := redisadapter.New(t.Context(), b.Client, redisadapter.Options{Prefix: b.Prefix})
	must(t, err)
	wantInput(t, store.Own(), "Options.Owned")
	wantOutcome(t, store, 1, dedup.Acquired)
}
