package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// layout is a way in which our store keeps its records.
type layout struct {
	name    string
	options redisadapter.Options
	config  func(*dedup.Config) // what the Deduper has to know of it; nil: nothing
}

// The configurations that take part. A new one needs a line here. The first is the one that
// runs where a family has room for one only.
var layouts = []layout{
	{"onceward seen-only", redisadapter.Options{Layout: redisadapter.SeenOnly}, nil},
	{"onceward rich", redisadapter.Options{Layout: redisadapter.Rich}, nil},
}

// rich is the layout that keeps results.
func rich() layout { return layouts[1] }

// cached is the in-process cache of finished keys, with room for all keys of a stream.
func cached(c *dedup.Config) { c.CacheBytes = 32 << 20 }

// ours is an opened configuration.
type ours struct {
	*dedup.Deduper
	client *redis.Client
}

// open connects a configuration of ours to addr, with connections for that many callers.
func (l layout) open(ctx context.Context, addr string, db, callers int, with ...func(*dedup.Config)) (*ours, error) {
	client := server.NewClient(addr, db, callers+16)
	store, err := redisadapter.New(ctx, client, l.options)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	// A namespace for each: nobody meets the keys of another.
	cfg := dedup.Config{Namespace: "bench-" + harness.FreshKeys(1)[0], Window: peer.Window, LeaseTTL: peer.Lease, StoreTimeout: 5 * time.Second}
	if l.config != nil {
		l.config(&cfg)
	}
	for _, change := range with {
		change(&cfg)
	}
	d, err := dedup.New(store, cfg)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &ours{d, client}, nil
}

func (o *ours) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = o.Close(ctx)
	_ = o.client.Close()
}

// cycle claims a new key and completes it.
func (o *ours) cycle(ctx context.Context, key string) error {
	c, err := o.Claim(ctx, key)
	if err != nil {
		return err
	}
	if c.Outcome != dedup.Acquired {
		return unexpected(key, c)
	}
	return c.Complete(ctx, nil)
}

// see takes a key of a stream: it may be new or a duplicate.
func (o *ours) see(ctx context.Context, key string) error {
	c, err := o.Claim(ctx, key)
	if err != nil {
		return err
	}
	switch c.Outcome {
	case dedup.Acquired:
		return c.Complete(ctx, nil)
	case dedup.Duplicate, dedup.InFlight: // a neighbour has just taken it
		return nil
	default:
		return unexpected(key, c)
	}
}

// seeBatch takes a batch of a stream: new keys are completed with result.
func (o *ours) seeBatch(ctx context.Context, keys []string, result []byte) error {
	claims, err := o.claimBatch(ctx, keys)
	if err != nil {
		return err
	}
	ends := make([]dedup.Completion, 0, len(claims))
	for i, c := range claims {
		switch c.Outcome {
		case dedup.Acquired:
			ends = append(ends, dedup.Completion{Claim: c, Result: result})
		case dedup.Duplicate, dedup.InFlight:
		default:
			return unexpected(keys[i], c)
		}
	}
	return errors.Join(o.CompleteBatch(ctx, ends)...)
}

// cycleBatch claims new keys and completes them.
func (o *ours) cycleBatch(ctx context.Context, keys []string, result []byte) error {
	claims, err := o.claimBatch(ctx, keys)
	if err != nil {
		return err
	}
	ends := make([]dedup.Completion, len(claims))
	for i, c := range claims {
		if c.Outcome != dedup.Acquired {
			return unexpected(keys[i], c)
		}
		ends[i] = dedup.Completion{Claim: c, Result: result}
	}
	return errors.Join(o.CompleteBatch(ctx, ends)...)
}

// cycles is cycleBatch for workers.
func (o *ours) cycles(result []byte) func(context.Context, int, []string) error {
	return func(ctx context.Context, _ int, keys []string) error { return o.cycleBatch(ctx, keys, result) }
}

// duplicates is duplicateBatch for workers.
func (o *ours) duplicates(ctx context.Context, _ int, keys []string) error {
	return o.duplicateBatch(ctx, keys)
}

// duplicateBatch claims keys that are all done.
func (o *ours) duplicateBatch(ctx context.Context, keys []string) error {
	claims, err := o.claimBatch(ctx, keys)
	if err != nil {
		return err
	}
	for i, c := range claims {
		if c.Outcome != dedup.Duplicate {
			return unexpected(keys[i], c)
		}
	}
	return nil
}

func (o *ours) claimBatch(ctx context.Context, keys []string) ([]*dedup.Claim, error) {
	reqs := make([]dedup.Request, len(keys))
	for i, key := range keys {
		reqs[i].Key = key
	}
	return o.ClaimBatch(ctx, reqs)
}

func unexpected(key string, c *dedup.Claim) error {
	return fmt.Errorf("%s: outcome %v: %w", key, c.Outcome, errors.Join(c.Err()))
}
