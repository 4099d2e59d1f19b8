package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
)

const batch = 256

// bench holds what the workloads share. Every key is used once.
type bench struct {
	client *redis.Client
	d      *dedup.Deduper
	stamp  int64
	next   atomic.Int64
}

func (b *bench) key() string { return fmt.Sprintf("%d-%d", b.stamp, b.next.Add(1)) }

// comparisons are the rows of the results. The goals are those for the plain-command
// hot path; this version claims through a script.
func (b *bench) comparisons() []comparison {
	return []comparison{
		{name: "batch 256, claim + complete, new keys", against: "raw pipelines SET NX GET PX; SET PX GET", goal: 0.85, ours: b.ourBatches, theirs: b.rawBatches},
		{name: "batch 256, claim + complete, new keys", against: "naive three round trips, 16 callers", goal: 10, ours: b.ourBatches, theirs: b.callers(16, b.naive), share: 4},
		{name: "lone caller, new key", against: "naive three round trips", goal: 1.35, ours: b.callers(1, b.ourSingle), theirs: b.callers(1, b.naive), share: 10},
		{name: "64 callers, new keys", against: "plain go-redis, two commands", goal: 2.5, ours: b.callers(64, b.ourSingle), theirs: b.callers(64, b.plain), share: 2},
		{name: "256 callers, new keys", against: "plain go-redis, two commands", goal: 4, ours: b.callers(256, b.ourSingle), theirs: b.callers(256, b.plain), share: 2},
	}
}

func (b *bench) ourBatches(ctx context.Context, keys int) error {
	for done := 0; done < keys; done += batch {
		reqs := make([]dedup.Request, batch)
		for i := range reqs {
			reqs[i].Key = b.key()
		}
		claims, err := b.d.ClaimBatch(ctx, reqs)
		if err != nil {
			return err
		}
		ends := make([]dedup.Completion, len(claims))
		for i, c := range claims {
			if c.Outcome != dedup.Acquired {
				return fmt.Errorf("claim: %v, %w", c.Outcome, c.Err())
			}
			ends[i].Claim = c
		}
		if errs := b.d.CompleteBatch(ctx, ends); errs != nil {
			return errors.Join(errs...)
		}
	}
	return nil
}

// rawBatches is the limit: the least that a claim and a completion can cost.
func (b *bench) rawBatches(ctx context.Context, keys int) error {
	token := make([]byte, 16)
	_, _ = rand.Read(token)
	for done := 0; done < keys; done += batch {
		names := make([]string, batch)
		claim, complete := b.client.Pipeline(), b.client.Pipeline()
		for i := range names {
			names[i] = "ow:raw:" + b.key()
			claim.SetArgs(ctx, names[i], token, redis.SetArgs{Mode: "NX", Get: true, TTL: 10 * time.Second})
			complete.SetArgs(ctx, names[i], "1", redis.SetArgs{Get: true, TTL: time.Minute})
		}
		if _, err := claim.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if _, err := complete.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) ourSingle(ctx context.Context) error {
	c, err := b.d.Claim(ctx, b.key())
	if err != nil {
		return err
	}
	return c.Complete(ctx, nil)
}

// naive is what people write first: ask, lock, set.
func (b *bench) naive(ctx context.Context) error {
	key := "ow:naive:" + b.key()
	if err := b.client.Get(ctx, key).Err(); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	if _, err := b.client.SetArgs(ctx, key, "p", redis.SetArgs{Mode: "NX", TTL: 10 * time.Second}).Result(); err != nil {
		return err
	}
	return b.client.Set(ctx, key, "1", time.Minute).Err()
}

// plain is the two-command cycle without batches.
func (b *bench) plain(ctx context.Context) error {
	key := "ow:plain:" + b.key()
	err := b.client.SetArgs(ctx, key, "token-token-token", redis.SetArgs{Mode: "NX", Get: true, TTL: 10 * time.Second}).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return b.client.SetArgs(ctx, key, "1", redis.SetArgs{Get: true, TTL: time.Minute}).Err()
}

// callers runs one over all keys from n goroutines.
func (b *bench) callers(n int, one func(context.Context) error) func(context.Context, int) error {
	return func(ctx context.Context, keys int) error {
		var wg sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			wg.Go(func() {
				for range keys / n {
					if errs[i] = one(ctx); errs[i] != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	}
}
