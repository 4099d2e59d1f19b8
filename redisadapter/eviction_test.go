package redisadapter_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// small is a server that evicts early.
func small(t *testing.T, policy string) *redis.Client {
	t.Helper()
	client := redistest.Client(t,
		&redis.Options{Addr: servertest.Private(t, servertest.KindRedis).Addr})
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "16mb").Err())
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
	return client
}

// crowdRequests are claims of many keys, by attempt of one owner.
func crowdRequests(first, n int, attempt byte) []driver.ClaimRequest {
	reqs := make([]driver.ClaimRequest, n)
	for i := range reqs {
		reqs[i] = driver.ClaimRequest{Lease: time.Minute, Hold: time.Hour}
		binary.BigEndian.PutUint32(reqs[i].ID[:], uint32(first+i))
		binary.BigEndian.PutUint32(reqs[i].Token[:], uint32(first+i))
		reqs[i].Token[15] = attempt
	}
	return reqs
}

// process claims keys and completes those that it is granted. It adds the recorded keys to done. It
// returns how many keys were granted although they were in done.
func process(ctx context.Context, store *redisadapter.Store, reqs []driver.ClaimRequest,
	done map[driver.ID]bool) (again int) {
	var ends []driver.Finish
	for i, a := range store.Claim(ctx, reqs) {
		if a.Outcome != dedup.Acquired {
			continue
		}
		if done[reqs[i].ID] {
			again++
		}
		ends = append(ends, driver.Finish{
			ID: reqs[i].ID, Token: reqs[i].Token, Fence: a.Record.Fence, Attempt: 1,
			State: driver.StateSucceeded, EffectApplied: true,
			Lease: time.Minute, Hold: time.Hour, Window: time.Hour,
			Until: time.Now().Add(time.Minute),
		})
	}
	for i, a := range store.Finish(ctx, ends) {
		if a.Written {
			done[ends[i].ID] = true
		}
	}
	return again
}

// evicted is how many keys a server has evicted.
func evicted(t *testing.T, client *redis.Client) (n uint64) {
	t.Helper()
	_, err := fmt.Sscan(infoOf(t, client, "stats", "evicted_keys"), &n)
	require.NoError(t, err)
	return n
}

// TestNewRefusesEviction: a server that evicts forgets which keys are done. A warning in the log
// would not stop anybody.
func TestNewRefusesEviction(t *testing.T) {
	client := small(t, "allkeys-lru")
	open := func(opts redisadapter.Options) error {
		opts.OnFinding = func(preflight.Finding) {}
		_, err := redisadapter.New(t.Context(), client, opts)
		return err
	}
	guarded := redisadapter.Options{Amnesia: redisadapter.FailClosed, AmnesiaFor: time.Hour}
	require.NoError(t, redisadapter.Init(t.Context(), client, guarded))
	var refused *redisadapter.RefusedError
	err := open(redisadapter.Options{})
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, []string{"eviction_policy"}, codes(refused.Findings))
	for _, part := range []string{
		"allkeys-lru", "16777216", "maxmemory-policy noeviction", "CONFIG SET", "ElastiCache",
		"parameter group", "MemoryDB",
		"Memorystore", "Azure", "Redis Cloud", "Upstash", "Options.AllowEviction", "FailClosed",
	} {
		assert.ErrorContains(t, err, part)
	}
	assert.Error(t, open(redisadapter.Options{Amnesia: redisadapter.AllowAndFlag,
		AmnesiaFor: time.Hour}))
	assert.NoError(t, open(guarded))
	assert.NoError(t, open(redisadapter.Options{AllowEviction: true}))
	assert.Error(t, open(redisadapter.Options{Amnesia: guarded.Amnesia, AmnesiaFor: time.Hour,
		Strict: true}))

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	assert.NoError(t, open(redisadapter.Options{}), "without a limit nothing is evicted")
}

// TestEvictionRepeatsNothing: with FailClosed, and without Watch, no recorded key is granted again.
// The first row shows what happens without the guard.
func TestEvictionRepeatsNothing(t *testing.T) {
	t.Parallel()
	const keys, batch = evictionKeys, 500
	for _, c := range []struct {
		policy  string
		amnesia redisadapter.Amnesia
	}{
		{"allkeys-lru", redisadapter.GuardOff},
		{"allkeys-lru", redisadapter.FailClosed},
		{"volatile-ttl", redisadapter.FailClosed},
		{"allkeys-random", redisadapter.FailClosed},
	} {
		t.Run(c.policy+"/"+c.amnesia.String(), func(t *testing.T) {
			t.Parallel()
			client := small(t, c.policy)
			require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", evictionMemory).Err())
			opts := redisadapter.Options{
				Amnesia: c.amnesia, AmnesiaFor: time.Hour,
				AllowEviction: c.amnesia == redisadapter.GuardOff,
				OnFinding:     func(preflight.Finding) {},
			}
			require.NoError(t, redisadapter.Init(t.Context(), client, opts))
			store, err := redisadapter.New(t.Context(), client, opts)
			require.NoError(t, err)
			done := make(map[driver.ID]bool)
			again := 0
			for first := 0; first < keys; first += batch {
				again += process(t.Context(), store, crowdRequests(first, batch, 1), done)
				// Old messages are redelivered all the time.
				again += process(t.Context(), store, crowdRequests(first/2, batch/10, 2), done)
			}
			acknowledged := len(done)
			require.NotZero(t, evicted(t, client))
			for first := 0; first < keys; first += batch {
				again += process(t.Context(), store, crowdRequests(first, batch, 3), done)
			}
			t.Logf("%d keys acknowledged, %d evicted, %d claimed again", acknowledged,
				evicted(t, client), again)
			assert.Equal(t, c.amnesia == redisadapter.GuardOff, again > 0,
				"%d of %d acknowledged keys were claimed again", again, acknowledged)
		})
	}
}

// TestEvictionBeforeTheStart: a server evicts while no process runs, and then a process starts. The
// keys that were evicted before Init do not count.
func TestEvictionBeforeTheStart(t *testing.T) {
	client := small(t, "volatile-lru")
	fill := func() { // memory is short until something was evicted
		before := evicted(t, client)
		require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "16mb").Err())
		for n := 0; evicted(t, client) == before; n += 1000 {
			require.Less(t, n, 1_000_000)
			_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				for i := range 1000 {
					p.Set(t.Context(), fmt.Sprintf("foreign:%d:%d", before, n+i), "", time.Hour)
				}
				return nil
			})
			require.NoError(t, err)
		}
		require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1gb").Err())
	}
	fill()
	store, _ := guarded(t, client, failClosed)
	wantOutcome(t, store, 1, dedup.Acquired)
	finishOne(t, store, 1)
	other, _ := reopen(t, client, failClosed)
	wantOutcome(t, other, 2, dedup.Acquired)

	fill()
	next, h := reopen(t, client, failClosed)
	wantAmnesia(t, next, 3)
	assert.NotZero(t, h.count("amnesia"))
	assert.Equal(t, 1, h.count("evicted_keys")-1, "Preflight's and the guard's")

	require.NoError(t, redisadapter.ClearAmnesia(t.Context(), client, failClosed))
	last, _ := reopen(t, client, failClosed)
	wantOutcome(t, last, 4, dedup.Acquired)
}

// TestPolicyOfARunningServer: when the policy changes under a process, that is reported and claims
// are still granted. With FailClosed the claims notice evictions after that, without Watch.
func TestPolicyOfARunningServer(t *testing.T) {
	client := small(t, "noeviction")
	plain, h := reopen(t, client, redisadapter.Options{})
	closed, _ := guarded(t, client, failClosed)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	watched(t, plain) // its first look is compared with that of New
	eventually(t, "it is reported", func() bool {
		return h.count("eviction_policy") == 1
	})
	wantOutcome(t, plain, 1, dedup.Acquired)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "2500kb").Err())
	for n := 0; evicted(t, client) == 0; n += batchSize {
		require.Less(t, n, 100_000)
		plain.Claim(t.Context(), crowdRequests(n, batchSize, 1))
	}
	n := 1 << 20
	eventually(t, "claims notice", func() bool {
		n++
		return redisadapter.Classify(closed.Claim(t.Context(),
			crowdRequests(n, 1, 1))[0].Err) == "amnesia"
	})
	wantOutcome(t, plain, 2, dedup.Acquired)
}

// TestGuardNeedsInfo: a guard without INFO cannot see evictions and restarts, so New fails.
func TestGuardNeedsInfo(t *testing.T) {
	client := redistest.Client(t,
		&redis.Options{Addr: servertest.Private(t, servertest.KindRedis).Addr})
	ctx := t.Context()
	require.NoError(t, redisadapter.Init(ctx, client, failClosed))
	require.NoError(t, client.Do(ctx, "acl", "setuser", "few", "on", "nopass", "~*", "+@all",
		"-info").Err())
	few := redistest.Client(t,
		&redis.Options{Addr: client.Options().Addr, Username: "few", Password: "x",
			ContextTimeoutEnabled: true})
	h := &findingLog{}
	_, err := redisadapter.New(ctx, few, redisadapter.Options{OnFinding: h.add})
	require.NoError(t, err)
	assert.Equal(t, []string{"not_learned"}, codes(h.list))
	found, err := redisadapter.Preflight(ctx, few)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Detail, "NOPERM")
	_, err = redisadapter.New(ctx, few,
		redisadapter.Options{Amnesia: redisadapter.FailClosed, AmnesiaFor: time.Hour,
			OnFinding: h.add})
	assert.ErrorContains(t, err, "NOPERM")
}
