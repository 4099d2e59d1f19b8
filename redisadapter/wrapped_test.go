package redisadapter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// TestWrapperIsAgreed: a consumer that uses keys directly must not run next to one that uses them
// through a wrapper, nor must consumers with different wrappers.
func TestWrapperIsAgreed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		forgetLayout(t, b)
		shared := redisadapter.Options{Prefix: b.Prefix}
		wrapped := redisadapter.Options{Prefix: b.Prefix, WrappedBy: "shell"}
		other := redisadapter.Options{Prefix: b.Prefix, WrappedBy: "husk"}
		for range 2 {
			_, err := redisadapter.New(t.Context(), b.Client, wrapped)
			must(t, err)
		}
		wantOtherLayout(t, b, shared, "wrapped_by is shell, and Options say not set")
		wantOtherLayout(t, b, other, "wrapped_by is shell, and Options say husk")
		must(t, b.Client.Del(t.Context(), b.Prefix+":layout").Err())
		_, err := redisadapter.New(t.Context(), b.Client, shared)
		must(t, err)
		wantOtherLayout(t, b, wrapped, "wrapped_by is not set, and Options say shell")
	})
}

// TestWrappedIsWithheld: a store with WrappedBy works only after OpenFor with the same name.
func TestWrappedIsWithheld(t *testing.T) {
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			b := redistest.Open(t, "miniredis")
			opts := layoutOptions(b.Prefix, layout)
			opts.WrappedBy = "shell"
			store, err := redisadapter.New(t.Context(), b.Client, opts)
			must(t, err)
			ctx, id := t.Context(), request(1).ID
			done := change(1, driver.StateSucceeded)
			finished, claimed := store.FinishClaim(ctx, []driver.Finish{done},
				[]driver.ClaimRequest{request(1)})
			_, forgets := store.Forgets(ctx)
			_, list := store.List(ctx, redisadapter.ListOptions{})
			for name, err := range map[string]error{
				"Claim":                claimOne(t, store, 1).Err,
				"Renew":                store.Renew(ctx, []driver.Renewal{renewalOf(done)})[0].Err,
				"Finish":               store.Finish(ctx, []driver.Finish{done})[0].Err,
				"Lookup":               store.Lookup(ctx, []driver.ID{id})[0].Err,
				"Forget":               store.Forget(ctx, []driver.ID{id}, time.Minute)[0],
				"FinishClaim":          finished[0].Err,
				"claim of FinishClaim": claimed[0].Err, "Forgets": forgets, "List": list,
			} {
				wantInput(t, err, "Options.WrappedBy")
				assert.False(t, dedup.CanRetry(err), "%s: %v is worth a retry", name, err)
			}
			keys := b.Client.Keys(ctx, b.Prefix+"*").Val()
			assert.Len(t, keys, 2, "keys %q: want the layout and the note about the index", keys)
			wantInput(t, store.OpenFor("husk"), "Options.WrappedBy")
			wantInput(t, claimOne(t, store, 1).Err, "Options.WrappedBy")
			must(t, store.OpenFor("shell"))
			must(t, store.OpenFor("shell"))
			wantOutcome(t, store, 1, dedup.Acquired)
		})
	}
}

func TestOpenForNeedsWrappedBy(t *testing.T) {
	b := redistest.Open(t, "miniredis")
	store, err := redisadapter.New(t.Context(), b.Client, redisadapter.Options{Prefix: b.Prefix})
	must(t, err)
	wantInput(t, store.OpenFor("shell"), "Options.WrappedBy")
	wantOutcome(t, store, 1, dedup.Acquired)
}

// TestWrapperHasAPlainName: the name must not add lines to the record of the layout.
func TestWrapperHasAPlainName(t *testing.T) {
	b := redistest.Open(t, "miniredis")
	for _, name := range []string{"a b", "shell\nlayout full", strings.Repeat("x", 65)} {
		_, err := redisadapter.New(t.Context(), b.Client,
			redisadapter.Options{Prefix: b.Prefix, WrappedBy: name})
		wantInput(t, err, "Options.WrappedBy")
	}
}
