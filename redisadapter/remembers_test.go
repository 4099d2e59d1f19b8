package redisadapter_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/layered"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

const centuries = 100 * 365 * 24 * time.Hour

func wantRemembers(t testing.TB, what string, store *redisadapter.Store, least,
	most time.Duration) {
	t.Helper()
	got := store.Remembers()
	assert.GreaterOrEqual(t, got, least,
		"%s: it remembers %v, want %v to %v", what, got, least, most)
	assert.LessOrEqual(t, got, most, "%s: it remembers %v, want %v to %v", what, got, least, most)
}

// After a loss, a granted claim must find that the store remembers nothing from before the loss.
func TestRemembersSinceTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := redistest.Bubble(t)
		opts := redisadapter.Options{Amnesia: redisadapter.AllowAndFlag}
		store, _ := guarded(t, client, opts)
		idle, _ := reopen(t, client, opts)
		wantRemembers(t, "before any loss", store, centuries, math.MaxInt64)
		wantOutcome(t, store, 1, dedup.Acquired)
		wantRemembers(t, "after a claim", store, centuries, math.MaxInt64)

		server.FlushAll()
		wantOutcome(t, store, 1, dedup.Acquired)
		wantRemembers(t, "after the first claim since", store, 0, time.Second)
		<-time.After(time.Minute)
		wantOutcome(t, store, 2, dedup.Acquired)
		wantRemembers(t, "a minute later", store, time.Minute, time.Minute+time.Second)
		wantOutcome(t, idle, 3, dedup.Acquired)
		wantRemembers(t, "who claims later learns of it later", idle, 0, time.Second)
		young, _ := reopen(t, client, opts)
		wantRemembers(t, "who begins while it is lost", young, 0, time.Second)

		<-time.After(time.Minute)
		must(t, redisadapter.ClearAmnesia(t.Context(), client, opts))
		wantOutcome(t, store, 4, dedup.Acquired)
		wantRemembers(t, "after ClearAmnesia", store, 0, time.Second)
		late, _ := reopen(t, client, opts)
		wantRemembers(t, "who begins after that", late, centuries, math.MaxInt64)

		wantOutcome(t, late, 5, dedup.Acquired)
		server.FlushAll()
		must(t, redisadapter.Init(t.Context(), client, opts))
		wantOutcome(t, late, 5, dedup.Acquired)
		wantRemembers(t, "after an Init over a loss", late, 0, time.Second)
	})
}

func TestRemembersNothingUnguarded(t *testing.T) {
	_, client := redistest.Mini(t)
	store, err := redisadapter.New(t.Context(), client, redisadapter.Options{})
	must(t, err)
	wantRemembers(t, "without a guard", store, 0, 0)
}

// A failover, or an event that looks like one, may have lost the newest keys, although the canary
// is there.
func TestRemembersSinceASuspicion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		store, _ := guarded(t, client, redisadapter.Options{Amnesia: redisadapter.FailClosed})
		redisadapter.Suspect(store)
		wantRemembers(t, "suspect", store, 0, time.Second)
		<-time.After(time.Minute)
		wantOutcome(t, store, 1, dedup.Acquired)
		wantRemembers(t, "a minute later", store, time.Minute, time.Minute+time.Second)
	})
}

// A server that evicts forgets single keys, and leaves the canary alone.
func TestRemembersNothingWhereKeysAreEvicted(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedis)
	client := redistest.Client(t, &redis.Options{Addr: server.Addr})
	opts := redisadapter.Options{Amnesia: redisadapter.FailClosed}
	store, _ := guarded(t, client, opts)
	wantRemembers(t, "noeviction", store, centuries, math.MaxInt64)
	must(t, client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	watched(t, store)
	eventually(t, "the watcher sees the policy", func() bool { return store.Remembers() == 0 })
	store, _ = reopen(t, client, opts)
	wantRemembers(t, "allkeys-lru", store, 0, 0)
}

// The layouts with one window for all keys cannot keep what has ended for an hour and what has
// failed for a day.
func TestLeasesNeedARecordForEachKey(t *testing.T) {
	for _, layout := range layouts {
		_, client := redistest.Mini(t)
		leases, err := redisadapter.New(t.Context(), client, layoutOptions("ow", layout))
		must(t, err)
		_, err = layered.New(leases, dedup.Memory(100), layered.Config{HotWindow: time.Hour,
			LeaseTTL: time.Minute})
		if redisadapter.Shards(leases) == 0 {
			must(t, err)
		} else {
			wantInput(t, err, "Hot")
		}
	}
}
