package consumer

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/onceward/onceward/bench/internal/workload"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// batch is the adapter's default.
const batch = 256

// redisOnly claims and completes the ids of the log in batches, with a goroutine per
// partition and no Kafka: the most that the store lets a consumer do.
func redisOnly(kind redisadapter.Layout) func(context.Context, job) (*member, error) {
	return func(ctx context.Context, j job) (*member, error) {
		d, shut, err := workload.OpenDeduper(ctx, j.redis, kind)
		if err != nil {
			return nil, err
		}
		run := func(ctx context.Context) error {
			all, ctx := errgroup.WithContext(ctx)
			for _, ids := range j.log.IDs {
				all.Go(func() error { return inBatches(ctx, d, ids, j.done) })
			}
			return all.Wait()
		}
		return background(ctx, run, func() error { shut(); return nil }), nil
	}
}

func inBatches(ctx context.Context, d *dedup.Deduper, ids []string, done *progress) error {
	for len(ids) > 0 && ctx.Err() == nil {
		n := min(batch, len(ids))
		if err := cycle(ctx, d, ids[:n]); err != nil {
			return err
		}
		done.add(n)
		ids = ids[n:]
	}
	return nil
}

// cycle claims a batch and completes what was new in it.
func cycle(ctx context.Context, d *dedup.Deduper, ids []string) error {
	reqs := make([]dedup.Request, len(ids))
	for i, id := range ids {
		reqs[i].Key = id
	}
	claims, err := d.ClaimBatch(ctx, reqs)
	if err != nil {
		return err
	}
	ends := make([]dedup.Completion, 0, len(claims))
	for i, c := range claims {
		switch c.Outcome {
		case dedup.Acquired:
			ends = append(ends, dedup.Completion{Claim: c})
		case dedup.Duplicate:
		default:
			return fmt.Errorf("consumer: %s: outcome %v: %w", ids[i], c.Outcome, errors.Join(c.Err()))
		}
	}
	return errors.Join(d.CompleteBatch(ctx, ends)...)
}
