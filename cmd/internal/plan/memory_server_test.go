package plan

import (
	"crypto/sha256"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// tolerance is by how much an estimate may differ from a measurement.
const tolerance = 0.15

// filling is a layout, and the data that is stored for a key.
type filling struct {
	layout      redisadapter.Layout
	result      int
	fingerprint bool
}

func (f filling) String() string {
	s := fmt.Sprintf("%v result %d", f.layout, f.result)
	if f.fingerprint {
		s += " fingerprint"
	}
	return s
}

// compareMemory fills a server of its own with n keys, and compares the memory that they take with
// the estimate.
func compareMemory(t *testing.T, f filling, n int) {
	t.Helper()
	o := Options{
		Rate: float64(n) / (24 * 3600), Window: 24 * time.Hour, Result: f.result,
		Fingerprint: f.fingerprint, Prefix: "ow",
		Spare: DefaultSpare, FalsePositives: DefaultFalsePositives,
	}
	p, err := New(o)
	require.NoError(t, err)
	planned := p.Redis[f.layout]
	require.Equal(t, f.layout.String(), planned.Layout, "the plan has %q in the place of %v",
		planned.Layout, f.layout)
	client := redis.NewClient(&redis.Options{Addr: servertest.Private(t, servertest.KindRedis).Addr,
		PoolSize: 1})
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.ConfigSet(t.Context(), "appendonly", "no").Err())
	opts := redisadapter.Options{Layout: f.layout, OnFinding: func(preflight.Finding) {}}
	if planned.Shards > 0 {
		opts.Window, opts.ExpectedKeys, opts.Secret = o.Window, planned.ExpectedKeys,
			[]byte("0123456789abcdef")
	}
	store, err := redisadapter.New(t.Context(), client, opts)
	require.NoError(t, err)
	fill(t, store, f, -batch, 0, o.Window) // connections and scripts are there
	before := used(t, client)
	fill(t, store, f, 0, n, o.Window)
	measured := float64(used(t, client)-before) / float64(n)
	// All keys are in one generation.
	reckoned := o.redis(f.layout, float64(n), planned.Shards, 1) / float64(n)
	t.Logf("%v, %d keys: measured %.2f bytes a key, reckoned %.2f (%+.1f %%), plan says %.2f",
		f, n, measured, reckoned, (reckoned/measured-1)*100, planned.BytesPerKey)
	for _, planned := range []float64{reckoned, planned.BytesPerKey} {
		assert.LessOrEqual(t, math.Abs(planned/measured-1), tolerance,
			"planned %.2f bytes a key, measured %.2f", planned, measured)
	}
}

const batch = 1000

// fill claims and completes the keys from first to end.
func fill(t *testing.T, store *redisadapter.Store, f filling, first, end int,
	window time.Duration) {
	t.Helper()
	reqs, ends := make([]driver.ClaimRequest, batch), make([]driver.Finish, batch)
	result := make([]byte, f.result)
	for ; first < end; first += batch {
		for i := range reqs {
			sum := sha256.Sum256([]byte(strconv.Itoa(first + i)))
			reqs[i] = driver.ClaimRequest{ID: driver.ID(sum[:16]), Token: driver.Token{1},
				Lease: time.Minute, Hold: time.Minute}
			if f.fingerprint {
				reqs[i].Fingerprint = driver.FingerprintOf(sum[:])
			}
		}
		until := time.Now().Add(time.Minute)
		for i, a := range store.Claim(t.Context(), reqs) {
			require.Equal(t, dedup.Acquired, a.Outcome, "key %d: %+v", first+i, a)
			ends[i] = driver.Finish{
				ID: reqs[i].ID, Token: reqs[i].Token, Fence: a.Record.Fence, Attempt: 1,
				Until: until, State: driver.StateSucceeded,
				EffectApplied: true, Window: window, Fingerprint: reqs[i].Fingerprint,
			}
			if f.result > 0 {
				ends[i].Result = result
			}
		}
		for i, a := range store.Finish(t.Context(), ends) {
			require.True(t, a.Held, "key %d: %+v", first+i, a)
			require.True(t, a.Written, "key %d: %+v", first+i, a)
		}
	}
}

func used(t *testing.T, client *redis.Client) int {
	t.Helper()
	info, err := client.Info(t.Context(), "memory").Result()
	require.NoError(t, err)
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); found {
			n, err := strconv.Atoi(value)
			require.NoError(t, err)
			return n
		}
	}
	t.Fatal("INFO memory has no used_memory")
	return 0
}

// TestMemory compares with servers of 100,000 keys. TestMemoryOfAMillion takes longer.
func TestMemory(t *testing.T) {
	for _, f := range []filling{
		{layout: redisadapter.Full, result: 1000, fingerprint: true},
		{layout: redisadapter.Full}, {layout: redisadapter.Compact},
	} {
		t.Run(f.String(), func(t *testing.T) { compareMemory(t, f, 100_000) })
	}
}
