package redisadapter_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// TestFullServerWithBuckets: a full server refuses SADD and obeys GETDEL. 1,000 claims
// are completed all the same, and nobody gets one of them again.
func TestFullServerWithBuckets(t *testing.T) {
	_, client, _ := private(t)
	ctx := t.Context()
	store := openWith(t, redistest.Backend{Client: client},
		layoutOptions("buckets", redisadapter.Compact))
	seasoned(t, store)
	const claimed = 4 * batchSize
	var ends []dedup.Finish
	for first := 0; first < claimed; first += batchSize {
		for i, a := range store.Claim(ctx, requests(first)) {
			ends = append(ends, done(first+i, a))
		}
	}
	must(t, client.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	must(t, client.ConfigSet(ctx, "maxmemory", "100kb").Err())
	for i, a := range store.Claim(ctx, requests(claimed)) {
		if !errors.Is(a.Err, dedup.ErrStoreFull) {
			t.Fatalf("new claim %d: %+v", i, a)
		}
	}
	for i, a := range store.Renew(ctx, renewals(0)) {
		if !a.Held {
			t.Fatalf("renewal %d: %+v", i, a)
		}
	}
	for i, a := range store.Finish(ctx, ends[:1000]) {
		if !a.Held || !a.Written {
			t.Fatalf("completion %d: %+v", i, a)
		}
	}
	for n := range claimed / batchSize {
		reqs := requests(n * batchSize)
		for i := range reqs {
			reqs[i].Token = dedup.Token{9}
		}
		for i, a := range store.Claim(ctx, reqs) {
			want := dedup.Duplicate
			if n*batchSize+i >= 1000 {
				want = dedup.InFlight
			}
			if a.Outcome != want {
				t.Fatalf("a second claim of key %d: %+v", n*batchSize+i, a)
			}
		}
	}
	release := change(1000, dedup.StateReleased)
	if a := store.Finish(ctx, []dedup.Finish{release})[0]; !a.Held {
		t.Errorf("a release: %+v", a)
	}
	must(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
}

// complete claims and completes so many keys, in batches of a thousand.
func complete(t testing.TB, store *redisadapter.Store, from, n int, window time.Duration) {
	t.Helper()
	const size = 1000
	reqs, ends := make([]dedup.ClaimRequest, size), make([]dedup.Finish, size)
	for first := from; first < from+n; first += size {
		for i := range reqs {
			reqs[i] = dedup.ClaimRequest{ID: numbered(first + i), Token: dedup.Token{1},
				Lease: time.Minute, Hold: time.Minute}
		}
		until := time.Now().Add(time.Minute)
		for i, a := range store.Claim(t.Context(), reqs) {
			if a.Outcome != dedup.Acquired {
				t.Fatalf("key %d is taken for done, or worse: %+v", first+i, a)
			}
			ends[i] = dedup.Finish{
				ID: reqs[i].ID, Token: reqs[i].Token, Fence: a.Record.Fence, Attempt: 1,
				Until: until, State: dedup.StateSucceeded, Landed: true, SeenOnly: true,
				Window: window,
			}
		}
		for i, a := range store.Finish(t.Context(), ends) {
			if !a.Held || !a.Written {
				t.Fatalf("key %d: %+v", first+i, a)
			}
		}
	}
}

// numbered is the digest of a key, as package dedup makes it.
func numbered(n int) dedup.ID {
	sum := sha256.Sum256([]byte(strconv.Itoa(n)))
	return dedup.ID(sum[:16])
}

// bytesPerKey completes n keys on a server of its own and returns what used_memory has
// grown by for each.
func bytesPerKey(t testing.TB, layout redisadapter.Layout, n int) (float64, *redisadapter.Store) {
	t.Helper()
	client := privateClient(t)
	opts := layoutOptions("ow", layout)
	if opts.Window != 0 {
		opts.Window, opts.ExpectedKeys = 24*time.Hour, n
	}
	store := openWith(t, redistest.Backend{Client: client}, opts)
	complete(t, store, -1000, 1000, 24*time.Hour) // connections and scripts are there
	before := usedMemory(t, client)
	complete(t, store, 0, n, 24*time.Hour)
	perKey := float64(usedMemory(t, client)-before) / float64(n)
	t.Logf("%v, %d keys: %.2f bytes per key", layout, n, perKey)
	return perKey, store
}

// privateClient connects to a server of its own that writes nothing to disk.
func privateClient(t testing.TB) *redis.Client {
	t.Helper()
	client := redistest.Client(t,
		&redis.Options{Addr: servertest.Private(t, servertest.KindRedis).Addr})
	must(t, client.ConfigSet(t.Context(), "appendonly", "no").Err())
	return client
}

func usedMemory(t testing.TB, client *redis.Client) int {
	t.Helper()
	info, err := client.Info(t.Context(), "memory").Result()
	must(t, err)
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); found {
			n, err := strconv.Atoi(value)
			must(t, err)
			return n
		}
	}
	t.Fatal("INFO memory has no used_memory")
	return 0
}

// TestBytesPerKey holds what the package comment promises, with as many keys as expected.
func TestBytesPerKey(t *testing.T) {
	for layout, limit := range map[redisadapter.Layout]float64{redisadapter.Compact: 10.5,
		redisadapter.Full: 220} {
		t.Run(fmt.Sprint(layout), func(t *testing.T) {
			if perKey, _ := bytesPerKey(t, layout, 50_000); perKey > limit {
				t.Errorf("%.1f bytes per key, at most %v are promised", perKey, limit)
			}
		})
	}
}
