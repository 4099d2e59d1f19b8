package redis_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
)

// contested is how many keys two workers want, in how many batches.
const contested, batches = 600, 4

// TestFrozenMasterWakesUp freezes a master while claims are on their way to it. Its
// replica is promoted, and another worker claims the keys there. The old master then
// wakes up and executes what waited in its sockets, before it learns that it has been
// replaced: "acquired", it says, of keys that somebody else owns.
//
// Claims count from before they were sent. Once the freeze has outlasted the lease they
// are not ours, whatever the server says. A shorter freeze is what replication that is
// waited for is for.
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
			races, _ := f.thaw(t, freeze.lease, freeze.outlasts)
			for _, r := range races {
				t.Run(r.name, func(t *testing.T) {
					doubled := r.doubled(t, f)
					if doubled > 0 && (freeze.outlasts || r.survives) {
						t.Errorf("%d keys have two owners", doubled)
					}
				})
			}
		})
	}
}

// frozen is a server of which one node can be frozen and replaced.
type frozen struct {
	*servertest.Server
	node   int
	prefix string // of the keys
	// stale does not notice the promotion, next does.
	stale, next redis.UniversalClient
	// promote makes a replica of the frozen node the master, and returns when it is one.
	promote func()
	// share is how many of the contested keys belong to the frozen node, at least and at most.
	least, most int
	// election is how long it took from the freeze until promote had returned.
	election time.Duration
}

// frozenPair is a primary that nobody tells that its replica has been promoted.
func frozenPair(t *testing.T) *frozen {
	t.Helper()
	p := startPair(t)
	stale := single(t, &redis.Options{Addr: p.Addrs[0], ReadTimeout: time.Minute, PoolSize: pool,
		MaxRetries: -1})
	must(t, connect(t.Context(), stale))
	return &frozen{
		Server: p.Server, node: 1, prefix: "ow", stale: stale, next: p.client, least: contested,
		most: contested, promote: func() { p.promote(t); p.follow() },
	}
}

// frozenCluster promotes by itself.
func frozenCluster(t *testing.T) *frozen {
	t.Helper()
	c := startCluster(t)
	return c.freezable(t, 1, "ow", advised(t, c.Addrs))
}

// freezable is the Cluster with the promotion of a master's replica ahead. The stale client knows
// the nodes as they are now.
func (c *cluster) freezable(t *testing.T, master int, prefix string,
	next redis.UniversalClient) *frozen {
	t.Helper()
	replica := c.replicaOf(t, master)
	stale := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs, ClusterStateReloadInterval: time.Hour, ReadTimeout: time.Minute,
		PoolSize: pool, MaxRetries: -1,
	})
	t.Cleanup(func() { must(t, stale.Close()) })
	must(t, stale.ForEachMaster(t.Context(), connect))
	return &frozen{
		Server: c.Server, node: master, prefix: prefix, stale: stale, next: next,
		least: contested / 6, most: contested / 2, promote: func() { c.promoted(t, replica) },
	}
}

// pool is the connections of a stale client: there must be idle ones to send more through
// while some wait for a server that says nothing.
const pool = 16 * batches

// connect opens half of them.
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

// race is what two workers of a layout were told of the same keys.
type race struct {
	layout
	late  func() map[string]driver.Outcome // who asked the frozen node
	taken []string                         // won by who asked its successor
}

// thaw freezes the node while keys are claimed, has them claimed elsewhere, and thaws it. It also
// returns how long it took from the freeze until the first layout's keys had all been asked for
// elsewhere.
func (f *frozen) thaw(t *testing.T, lease time.Duration, outlast bool) (races []*race,
	recovered time.Duration) {
	t.Helper()
	cfg := dedup.Config{Window: window, LeaseTTL: lease, StoreTimeout: min(lease/2, 10*time.Second)}
	var first, second []*dedup.Deduper
	for _, l := range layouts {
		options := l.options
		options.Prefix = f.prefix + "-" + l.name
		a := l.sharing(t, f.stale, cfg, options)
		outcomes(t, a, "warm", 100, dedup.Acquired) // the scripts are there
		impatient := cfg
		impatient.StoreTimeout = 200 * time.Millisecond
		first, second = append(first, a), append(second, l.sharing(t, f.next, impatient, options))
		races = append(races, &race{layout: l})
	}
	f.Stop(f.node)
	began := time.Now()
	for i, r := range races {
		r.late = claimLate(t, first[i])
	}
	// of the node that is frozen: their leases begin at the latest now, but for the scheduler
	asked := time.Now()
	f.promote()
	f.election = time.Since(began)
	for i, r := range races {
		r.taken = takeAll(t, second[i])
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
	if len(r.taken) < f.least || len(r.taken) > f.most {
		t.Errorf("the frozen node has between %d and %d keys: this test has shown nothing",
			f.least, f.most)
	}
	return n
}

// claimLate claims the contested keys in batches at the same time, and returns a function
// that waits for the answers.
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
			if err != nil {
				t.Error(err)
			}
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

// takeAll claims the contested keys until each is won or found in flight, and returns
// those that were won. The promoted server may be unknown to its clients for a moment.
func takeAll(t *testing.T, d *dedup.Deduper) (won []string) {
	t.Helper()
	todo := requests("contested", contested)
	eventually(t, 10*time.Second, "the other worker has asked for every key", func() bool {
		claims, err := d.ClaimBatch(t.Context(), todo)
		must(t, err)
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
