package workload

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// ours is an opened configuration.
type ours struct {
	*dedup.Deduper
	client *redis.Client
}

// open connects a configuration of ours to addr, with a client as people have it.
func (l layout) open(ctx context.Context, addr string, db int, with ...func(*dedup.Config)) (*ours, error) {
	// A namespace for each: nobody meets the keys of another.
	cfg := dedup.Config{Namespace: "bench-" + harness.FreshKeys(1)[0], Window: peer.Window, LeaseTTL: peer.Lease, StoreTimeout: 5 * time.Second}
	if l.config != nil {
		l.config(&cfg)
	}
	for _, change := range with {
		change(&cfg)
	}
	client := server.NewClient(addr, db, 0)
	store, err := redisadapter.New(ctx, client, l.options(cfg.Window))
	if err != nil {
		return nil, errors.Join(err, client.Close())
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
	ends, err := completions(keys, claims, result)
	if err != nil {
		return err
	}
	return errors.Join(o.CompleteBatch(ctx, ends)...)
}

// completions ends the claims of keys that all were new.
func completions(keys []string, claims []*dedup.Claim, result []byte) ([]dedup.Completion, error) {
	ends := make([]dedup.Completion, len(claims))
	for i, c := range claims {
		if c.Outcome != dedup.Acquired {
			return nil, unexpected(keys[i], c)
		}
		ends[i] = dedup.Completion{Claim: c, Result: result}
	}
	return ends, nil
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
	return allDuplicates(keys, claims)
}

func allDuplicates(keys []string, claims []*dedup.Claim) error {
	for i, c := range claims {
		if c.Outcome != dedup.Duplicate {
			return unexpected(keys[i], c)
		}
	}
	return nil
}

// likely is duplicates for a consumer that expects them, such as one that replays.
func (o *ours) likely(ctx context.Context, _ int, keys []string) error {
	reqs := requests(keys)
	for i := range reqs {
		reqs[i].LikelyDuplicate = true
	}
	claims, err := o.ClaimBatch(ctx, reqs)
	if err != nil {
		return err
	}
	return allDuplicates(keys, claims)
}

// merged claims each batch in the round trip that completes the one before, as a consumer
// does that always has a next one.
func (o *ours) merged(ctx context.Context, t *harness.Timing) error {
	var next atomic.Int64
	return parallel(ctx, workers, func(ctx context.Context, _ int) error {
		var ends []dedup.Completion
		for {
			to := int(next.Add(typical))
			if to-typical >= len(t.Keys) {
				return errors.Join(o.CompleteBatch(ctx, ends)...)
			}
			keys := t.Keys[to-typical : min(to, len(t.Keys))]
			errs, claims, err := o.CompleteAndClaim(ctx, ends, requests(keys))
			if err := errors.Join(append(errs, err)...); err != nil {
				return err
			}
			if ends, err = completions(keys, claims, nil); err != nil {
				return err
			}
		}
	})
}

func (o *ours) claimBatch(ctx context.Context, keys []string) ([]*dedup.Claim, error) {
	return o.ClaimBatch(ctx, requests(keys))
}

func requests(keys []string) []dedup.Request {
	reqs := make([]dedup.Request, len(keys))
	for i, key := range keys {
		reqs[i].Key = key
	}
	return reqs
}

func unexpected(key string, c *dedup.Claim) error {
	return fmt.Errorf("%s: outcome %v: %w", key, c.Outcome, errors.Join(c.Err()))
}

// OpenDeduper connects the configuration with that layout for other packages' workloads,
// over a namespace of its own; shut closes it with its client.
func OpenDeduper(ctx context.Context, addr string, kind redisadapter.Layout, with ...func(*dedup.Config)) (d *dedup.Deduper, shut func(), err error) {
	return OpenDeduperFor(ctx, addr, kind, someKeys, with...)
}

// OpenDeduperFor is OpenDeduper for so many keys of a window, where the layout is planned by that.
func OpenDeduperFor(ctx context.Context, addr string, kind redisadapter.Layout, keys int, with ...func(*dedup.Config)) (d *dedup.Deduper, shut func(), err error) {
	o, err := lookup(kind).expecting(keys).open(ctx, addr, 0, with...)
	if err != nil {
		return nil, nil, err
	}
	return o.Deduper, o.close, nil
}
