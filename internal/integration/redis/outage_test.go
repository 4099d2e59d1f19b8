package redis_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// impatient configures a Deduper that gives up soon, patient one that waits for longer.
var (
	impatient = dedup.Config{Window: window, LeaseTTL: 30 * time.Second,
		StoreTimeout: 300 * time.Millisecond}
	patient = dedup.Config{Window: window, LeaseTTL: 30 * time.Second,
		StoreTimeout: 10 * time.Second}
)

// both returns an impatient Deduper and a patient one of the same keys.
func (l layout) both(t *testing.T, client redis.UniversalClient) (soon, d *dedup.Deduper) {
	t.Helper()
	options := l.options
	options.Prefix = servertest.Prefix(t)
	return l.sharing(t, client, impatient, options), l.sharing(t, client, patient, options)
}

// claimAll claims the keys of a name from as many goroutines, and returns the outcomes, the errors
// and the longest call.
func claimAll(t *testing.T, d *dedup.Deduper, name string, n int) (outcomes map[driver.Outcome]int,
	classes map[string]int, longest time.Duration) {
	t.Helper()
	outcomes, classes = make(map[driver.Outcome]int), make(map[string]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, r := range requests(name, n) {
		wg.Go(func() {
			sent := time.Now()
			c, err := d.Claim(t.Context(), r.Key)
			took := time.Since(sent)
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, took)
			if err == nil {
				outcomes[c.Outcome]++
				return
			}
			outcomes[dedup.Unknown]++
			classes[redisadapter.Classify(err)]++
			assert.True(t, dedup.OutcomeUnknown(err), "not an error that may be retried: %v", err)
			assert.False(t, dedup.CanRetry(err), "not an error that may be retried: %v", err)
		})
	}
	wg.Wait()
	return outcomes, classes, longest
}

// TestDeadConnections fills a pool with connections, and then the server behind them dies or hangs.
// Calls return within their budget. Soon after the server is back no call fails because of the
// outage: after a pool's worth of refused dials, go-redis tries again only after a second.
func TestDeadConnections(t *testing.T) {
	const callers = 100
	t.Parallel()
	for _, fault := range []struct {
		name        string
		hit, repair func(*servertest.Server)
	}{
		{"SIGKILL", func(s *servertest.Server) {
			s.Kill(1)
		}, func(s *servertest.Server) { s.Start(1) }},
		{"SIGSTOP", func(s *servertest.Server) {
			s.Stop(1)
		}, func(s *servertest.Server) { s.Cont(1) }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			eachLayout(t, func(t *testing.T, l layout) {
				server := servertest.Private(t, servertest.KindRedis)
				client := single(t, &redis.Options{Addr: server.Addr})
				// With everysec an acknowledged write waits in the process while an fsync takes
				// long.
				require.NoError(t, client.ConfigSet(t.Context(), "appendfsync", "always").Err())
				soon, d := l.both(t, client)
				complete(t, l, d, inFlight(t, d, "done", callers))
				fault.hit(server)
				outcomes, classes, longest := claimAll(t, soon, "done", callers)
				t.Logf("while the server is out: %v, %v, longest call %v", outcomes, classes,
					longest.Round(time.Millisecond))
				assert.Equal(t, callers, outcomes[dedup.Unknown],
					"an answer while the server is out: %v", outcomes)
				assert.LessOrEqual(t, longest, budget(impatient), "a call")
				fault.repair(server)
				back := time.Now()
				eventually(t, 10*time.Second, "every call is answered", func() bool {
					outcomes, classes, _ = claimAll(t, soon, "done", callers)
					t.Logf("%v after it is back: %v, %v", time.Since(back).Round(time.Millisecond),
						outcomes, classes)
					assert.Equal(t, callers, outcomes[dedup.Duplicate]+outcomes[dedup.Unknown],
						"got %v", outcomes)
					return outcomes[dedup.Unknown] == 0
				})
			})
		})
	}
}

// TestLoading asks a server that reads its data set after a start. The answer must not be "absent",
// which would run everything again, nor any other state of a key.
func TestLoading(t *testing.T) {
	t.Parallel()
	eachLayout(t, func(t *testing.T, l layout) {
		const keys, more = 500, 10_000
		client, soon, d := loadable(t, l)
		// Sets of members are few keys, and a server loads by keys. It answers after a number of
		// bytes, so the values must not be compressible.
		_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := range more {
				p.Set(t.Context(), fmt.Sprintf("more-%d", i), rand.Text()+rand.Text(), 0)
			}
			return nil
		})
		require.NoError(t, err)
		complete(t, l, d, inFlight(t, d, "done", keys))
		delay := func(perKey string) { // it can be changed while the server loads
			require.NoError(t, single(t, &redis.Options{Addr: client.Options().Addr,
				ReadTimeout: time.Minute}).ConfigSet(t.Context(), "key-load-delay", perKey).Err())
		}
		// In microseconds: more than ten seconds in all, unless it is lowered. The server answers
		// once in about seventeen keys, and a call of several round trips must still end before its
		// deadline.
		delay("1000")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		loaded := make(chan error, 1)
		go func() { loaded <- client.Do(ctx, "DEBUG", "RELOAD").Err() }()
		reader := single(t, &redis.Options{Addr: client.Options().Addr, MaxRetries: -1})
		eventually(t, 10*time.Second, "the server says LOADING", func() bool {
			return redisadapter.Classify(reader.Get(t.Context(),
				"ow").Err()) == "loading"
		})
		seen, shortened := make(map[string]int), false
		for during := true; during; {
			select {
			case err := <-loaded:
				require.NoError(t, err)
				during = false
			default:
				if seen["unknown: loading"] >= 3 && !shortened {
					delay("0")
					shortened = true
				}
				c, err := soon.Claim(t.Context(), "done-0")
				switch {
				case err == nil:
					seen[c.Outcome.String()]++
				case dedup.OutcomeUnknown(err):
					seen[fmt.Sprintf("unknown: %s", redisadapter.Classify(err))]++
				default:
					t.Fatalf("while the server loads: %v", err)
				}
			}
		}
		t.Logf("while the server loaded: %v", seen)
		assert.NotZero(t, seen["unknown: loading"],
			"no caller got LOADING: this test proves nothing")
		assert.Zero(t, seen["acquired"]+seen["in_flight"],
			"a key that is done was given away")
		outcomes(t, d, "done", keys, dedup.Duplicate)
	})
}

// loadable is a server that answers between two keys while it loads, and two Dedupers, one of which
// gives up before the server has loaded.
func loadable(t *testing.T, l layout) (client *redis.Client, soon, d *dedup.Deduper) {
	t.Helper()
	server := servertest.Private(t, servertest.KindRedis)
	client = single(t, &redis.Options{Addr: server.Addr, ReadTimeout: time.Minute, MaxRetries: -1})
	require.NoError(t, client.ConfigSet(t.Context(), "loading-process-events-interval-bytes",
		"1024").Err())
	// go-redis also retries; with a few more retries its caller sees only the deadline.
	soon, d = l.both(t, single(t, &redis.Options{Addr: server.Addr, MaxRetries: 1}))
	return client, soon, d
}

// TestDemotedPrimary keeps a client on a primary that has become a replica. Its answer for new keys
// is Unknown. It never says "duplicate" of a key that has not run, and never gives one away. When
// the client is led to the new primary, work continues.
func TestDemotedPrimary(t *testing.T) {
	t.Parallel()
	eachLayout(t, func(t *testing.T, l layout) {
		const callers = 50
		p := startPair(t)
		d := l.deduper(t, p.client, patient)
		complete(t, l, d, inFlight(t, d, "done", callers))
		p.replicated(t)
		p.swap(t)
		outcomes, classes, longest := claimAll(t, d, "new", callers)
		t.Logf("new keys, at a replica: %v, %v, longest call %v", outcomes, classes,
			longest.Round(time.Millisecond))
		assert.Equal(t, callers, outcomes[dedup.Unknown],
			"new keys, at a replica: %v, %v; read_only", outcomes, classes)
		assert.NotZero(t, classes["read_only"], "new keys, at a replica: %v, %v; read_only",
			outcomes, classes)
		outcomes, _, _ = claimAll(t, d, "done", callers)
		t.Logf("finished keys, at a replica: %v", outcomes)
		assert.Equal(t, callers, outcomes[dedup.Unknown]+outcomes[dedup.Duplicate],
			"finished keys, at a replica: %v", outcomes)
		p.follow()
		outcomes, classes, _ = claimAll(t, d, "new", callers)
		assert.Equal(t, callers, outcomes[dedup.Acquired], "new keys, at the new primary: %v, %v",
			outcomes, classes)
		outcomes, classes, _ = claimAll(t, d, "done", callers)
		assert.Equal(t, callers, outcomes[dedup.Duplicate],
			"finished keys, at the new primary: %v, %v", outcomes, classes)
	})
}
