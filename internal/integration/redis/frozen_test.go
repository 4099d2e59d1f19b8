package redis_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
)

// contested is how many keys two workers want, in how many batches.
const contested, batches = 600, 4

// TestFrozenMasterWakesUp freezes a master while claims are on their way to it. Its replica is
// promoted, and another worker claims the keys there. The old master then wakes up and executes
// the commands that waited in its sockets, before it learns that it was replaced. It answers
// "acquired" for keys that another worker owns.
//
// The lease of a claim counts from before the claim was sent. Once the freeze has outlasted the
// lease, the claim is not ours, whatever the server says. Against a shorter freeze, wait for
// replication.
func TestFrozenMasterWakesUp(t *testing.T) {
	for _, freeze := range []struct {
		name     string
		lease    time.Duration
		outlasts bool // the freeze outlasts the lease
		of       func(*testing.T) *frozen
	}{
		{"pair, longer than the lease", 3 * time.Second, true, frozenPair},
		{"pair, shorter than the lease", time.Minute, false, frozenPair},
		{"cluster, longer than the lease", 7 * time.Second, true, frozenCluster},
	} {
		t.Run(freeze.name, func(t *testing.T) {
			t.Parallel()
			f := freeze.of(t)
			f.timeout = min(freeze.lease/2, 2*time.Second) // a busy machine may need that
			races, _ := f.thaw(t, freeze.lease, freeze.outlasts)
			for _, r := range races {
				t.Run(r.name, func(t *testing.T) {
					doubled := r.doubled(t, f)
					assert.False(t, doubled > 0 && (freeze.outlasts || r.survives),
						"%d keys have two owners", doubled)
				})
			}
		})
	}
}

// frozen is a server with a node that can be frozen and replaced.
type frozen struct {
	*servertest.Server
	node   int
	prefix string // of the keys
	// stale does not notice the promotion, next does.
	stale, next redis.UniversalClient
	// promote makes a replica of the frozen node the master, and returns when it is one.
	promote func()
	// least and most bound how many of the contested keys belong to the frozen node.
	least, most int
	// election is the time from the freeze until promote returned.
	election time.Duration
	// timeout is the StoreTimeout of the other worker; 0 means 200 ms.
	timeout time.Duration
}

// frozenPair is a primary that does not learn that its replica was promoted.
func frozenPair(t *testing.T) *frozen {
	t.Helper()
	p := startPair(t)
	stale := single(t, &redis.Options{Addr: p.Addrs[0], ReadTimeout: time.Minute, PoolSize: pool,
		MaxRetries: -1})
	require.NoError(t, connect(t.Context(), stale))
	return &frozen{
		Server: p.Server, node: 1, prefix: "ow", stale: stale, next: p.client, least: contested,
		most: contested, promote: func() { p.promote(t); p.follow() },
	}
}

// frozenCluster promotes a replica by itself.
func frozenCluster(t *testing.T) *frozen {
	t.Helper()
	c := startCluster(t)
	return c.freezable(t, 1, "ow", advised(t, c.Addrs))
}

// freezable prepares the Cluster for the promotion of a master's replica. The stale client knows
// the nodes as they are now.
func (c *cluster) freezable(t *testing.T, master int, prefix string,
	next redis.UniversalClient) *frozen {
	t.Helper()
	replica := c.replicaOf(t, master)
	stale := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs, ClusterStateReloadInterval: time.Hour, ReadTimeout: time.Minute,
		PoolSize: pool, MaxRetries: -1,
	})
	t.Cleanup(func() { require.NoError(t, stale.Close()) })
	require.NoError(t, stale.ForEachMaster(t.Context(), connect))
	return &frozen{
		Server: c.Server, node: master, prefix: prefix, stale: stale, next: next,
		least: contested / 6, most: contested / 2, promote: func() { c.promoted(t, replica) },
	}
}

// pool is the number of connections of a stale client. Idle ones must be left to send more
// commands while others wait for a server that does not answer.
const pool = 16 * batches

// connect opens half of the connections.
func connect(ctx context.Context, node *redis.Client) error {
	for range pool / 2 {
		conn := node.Conn()
		defer func() { _ = conn.Close() }()
		if err := conn.Ping(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}

// race is the answers that two workers of a layout got for the same keys.
type race struct {
	layout
	late  func() map[string]driver.Outcome // the answers of the frozen node
	taken []string                         // the keys won at its successor
	most  int                              // how many keys it may win
}

// thaw freezes the node while keys are claimed, has them claimed elsewhere, and thaws it. It also
// returns the time from the freeze until all keys of the first layout had been claimed elsewhere.
func (f *frozen) thaw(t *testing.T, lease time.Duration, outlast bool) (races []*race,
	recovered time.Duration) {
	t.Helper()
	cfg := dedup.Config{Window: window, LeaseTTL: lease, StoreTimeout: min(lease/2, 10*time.Second)}
	var first, second []*dedup.Deduper
	for _, l := range layouts {
		options := l.options
		options.Prefix = f.prefix + "-" + l.name
		a := l.sharing(t, f.stale, cfg, options)
		outcomes(t, a, "warm", 100, dedup.Acquired) // the servers have the scripts
		impatient := cfg
		impatient.StoreTimeout = cmp.Or(f.timeout, 200*time.Millisecond)
		first, second = append(first, a), append(second, l.sharing(t, f.next, impatient, options))
		races = append(races, &race{layout: l, most: f.most})
	}
	f.Stop(f.node)
	began := time.Now()
	for i, r := range races {
		r.late = claimLate(t, first[i])
	}
	// the claims at the frozen node: their leases begin now at the latest, except for the
	// scheduler
	asked := time.Now()
	f.promote()
	f.election = time.Since(began)
	for i, r := range races {
		r.taken = takeAll(t, second[i])
		if time.Since(began) >= lease {
			r.most = contested // claims at the other nodes may have lapsed too
		}
		if i == 0 {
			recovered = time.Since(began)
		}
	}
	if outlast {
		eventually(t, 2*lease, "the lease is over", func() bool {
			return time.Since(asked) > lease+lease/4
		})
	}
	f.Cont(f.node)
	t.Logf("lease %v, frozen for %v", lease, time.Since(began).Round(time.Millisecond))
	return races, recovered
}

// doubled counts the keys that both workers own.
func (r *race) doubled(t *testing.T, f *frozen) (n int) {
	t.Helper()
	late := r.late()
	for _, key := range r.taken {
		if late[key] == dedup.Acquired {
			n++
		}
	}
	t.Logf("%d of %d keys were claimed elsewhere meanwhile, %d of them have two owners",
		len(r.taken), contested, n)
	assert.GreaterOrEqual(t, len(r.taken), f.least,
		"the frozen node has between %d and %d keys: this test has shown nothing", f.least, f.most)
	assert.LessOrEqual(t, len(r.taken), r.most,
		"the frozen node has between %d and %d keys: this test has shown nothing", f.least, f.most)
	return n
}

// claimLate claims the contested keys in batches at the same time, and returns a function that
// waits for the answers.
func claimLate(t *testing.T, d *dedup.Deduper) (answers func() map[string]driver.Outcome) {
	t.Helper()
	var mu sync.Mutex
	var wg, begun sync.WaitGroup
	outcomes := make(map[string]driver.Outcome)
	for part := range slices.Chunk(requests("contested", contested), contested/batches) {
		begun.Add(1)
		wg.Go(func() {
			begun.Done()
			claims, err := d.ClaimBatch(t.Context(), part)
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			for _, c := range claims {
				outcomes[c.Key] = c.Outcome
			}
		})
	}
	begun.Wait()
	return func() map[string]driver.Outcome {
		wg.Wait()
		return outcomes
	}
}

// takeAll claims the contested keys until each is won or found in flight, and returns those that
// were won. Clients may not know the promoted server for a moment.
func takeAll(t *testing.T, d *dedup.Deduper) (won []string) {
	t.Helper()
	todo := requests("contested", contested)
	eventually(t, 10*time.Second, "the other worker has asked for every key", func() bool {
		claims, err := d.ClaimBatch(t.Context(), todo)
		require.NoError(t, err)
		todo = nil
		for _, c := range claims {
			switch c.Outcome {
			case dedup.Acquired:
				won = append(won, c.Key)
			case dedup.InFlight:
			default:
				todo = append(todo, dedup.Request{Key: c.Key})
			}
		}
		return len(todo) == 0
	})
	return won
}
