package guarantees_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// duo is a primary and its replica.
type duo struct {
	client *redis.Client
	// part cuts the replica off: from then on only the primary has what it acknowledges.
	part func(t *testing.T)
	// promote leads the client to the replica.
	promote func(t *testing.T)
	waits   bool // its servers have WAIT
}

// failover runs a test over two miniredis and over a real pair.
func failover(t *testing.T, test func(t *testing.T, pair *duo)) {
	t.Run("miniredis", func(t *testing.T) { test(t, miniDuo(t)) })
	t.Run("redis", func(t *testing.T) { test(t, realDuo(t)) })
}

func newDuo(t *testing.T, addrs []string) (*duo, *atomic.Int32) {
	t.Helper()
	target := new(atomic.Int32)
	var dial net.Dialer
	client := redistest.Client(t, &redis.Options{
		Addr: "primary.example:6379",
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dial.DialContext(ctx, network, addrs[target.Load()])
		},
	})
	return &duo{client: client}, target
}

func miniDuo(t *testing.T) *duo {
	a, _ := redistest.Mini(t)
	b, _ := redistest.Mini(t)
	pair, target := newDuo(t, []string{a.Addr(), b.Addr()})
	pair.part = func(*testing.T) {} // the second one never gets any data
	pair.promote = func(*testing.T) { target.Store(1); a.Close() }
	return pair
}

func realDuo(t *testing.T) *duo {
	server := servertest.Private(t, servertest.KindRedisPair)
	pair, target := newDuo(t, server.Addrs)
	pair.waits = true
	replica := redistest.Client(t, &redis.Options{Addr: server.Addrs[1]})
	pair.part = func(t *testing.T) {
		require.NoError(t, replica.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	}
	pair.promote = func(*testing.T) { target.Store(1); server.Kill(1) }
	return pair
}

func (p *duo) worker(t *testing.T, opts redisadapter.Options, edit ...func(*dedup.Config)) *worker {
	t.Helper()
	store, err := redisadapter.New(t.Context(), p.client, opts)
	require.NoError(t, err)
	return newWorker(t, store, edit...)
}

// claimedThroughFailover: an acknowledged record is lost in the failover.
func claimedThroughFailover(t *testing.T, pair *duo) {
	n := newTally()
	plain := pair.worker(t, redisadapter.Options{})
	durably := plain
	if pair.waits {
		durably = pair.worker(t,
			redisadapter.Options{Durability: redisadapter.Durability{Replicas: 1,
				Timeout: 50 * time.Millisecond}},
			func(c *dedup.Config) { c.LeaseTTL = time.Second })
	}
	pair.part(t)
	effect := func(context.Context) (string, error) { n.add("m"); return "", nil }
	plain.deliver("m", effect)
	durable := func(context.Context) (string, error) { n.add("durable"); return "", nil }
	if pair.waits {
		// An owner that waits for the replica does not win this claim, so no effect runs under a
		// claim that could be lost.
		_, err := dedup.Do(t.Context(), durably.d, "durable", durable)
		assert.True(t, dedup.OutcomeUnknown(err), "one replica is required and none is there: %v",
			err)
	}
	pair.promote(t)
	again := pair.worker(t, redisadapter.Options{})
	again.deliver("m", effect)
	n.want(t, "m", 2, "the new primary never had the record")
	again.deliver("durable", durable)
	n.want(t, "durable", 1, "no effect ran under a claim that no replica has")
}

// askedThroughFailover: the uncertain key is lost too, so the resolver is not asked.
func askedThroughFailover(t *testing.T, pair *duo) {
	n := newTally()
	questions := 0
	asks := func(c *dedup.Config) {
		c.Resolve = func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			questions++
			return dedup.Happened(nil), nil
		}
	}
	handle := func(ctx context.Context) (string, error) {
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return "", dedup.NotStarted(err)
		}
		n.add("m")
		return "", errors.New("no answer from the bank")
	}
	w := pair.worker(t, redisadapter.Options{}, asks)
	pair.part(t)
	_, err := dedup.Do(t.Context(), w.d, "m", handle)
	assert.Error(t, err, "acknowledged")
	rec, err := w.d.Lookup(t.Context(), "m")
	assert.NoError(t, err)
	assert.Equal(t, driver.StateUncertain, rec.State)
	pair.promote(t)
	_, err = dedup.Do(t.Context(), pair.worker(t, redisadapter.Options{}, asks).d, "m", handle)
	assert.Error(t, err, "acknowledged")
	n.want(t, "m", 2, "the new primary never had the uncertain key")
	assert.Zero(t, questions, "%d questions about a key that was lost", questions)
}
