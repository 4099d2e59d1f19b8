package peer

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Naive is what people write first: ask, lock, set; three round trips.
func Naive(client redis.Cmdable) Peer {
	return Peer{Name: "naive GET, SET NX, SET", Cycle: func(ctx context.Context, key string) error {
		if err := nilReply(key, client.Get(ctx, key).Err()); err != nil {
			return err
		}
		if _, err := client.SetArgs(ctx, key, token, redis.SetArgs{Mode: "NX", TTL: Lease}).Result(); err != nil {
			return err
		}
		return client.Set(ctx, key, done, Window).Err()
	}}
}

// Plain is the least: SET NX GET PX, then SET GET PX; two round trips.
func Plain(client redis.Cmdable) Peer {
	return Peer{Name: "plain go-redis", Cycle: twoCommands(client)}
}

func twoCommands(client redis.Cmdable) Cycle {
	return func(ctx context.Context, key string) error {
		err := client.SetArgs(ctx, key, token, redis.SetArgs{Mode: "NX", Get: true, TTL: Lease}).Err()
		if err := nilReply(key, err); err != nil {
			return err
		}
		old, err := client.SetArgs(ctx, key, done, redis.SetArgs{Get: true, TTL: Window}).Result()
		if err == nil && old != token {
			return fmt.Errorf("%s: the claim was lost", key)
		}
		return err
	}
}

// AutoPipeline is Plain through go-redis's own coalescer, which is experimental there.
func AutoPipeline(client *redis.Client) (Peer, error) {
	ap, err := client.AutoPipeline()
	if err != nil {
		return Peer{}, fmt.Errorf("peer: AutoPipeline: %w", err)
	}
	return Peer{Name: "go-redis AutoPipeline", Cycle: twoCommands(ap), Close: func() { _ = ap.Close() }}, nil
}

// GoRedisBatch does a batch in the two pipelines of Plain, as go-redis offers it: SetArgs.
func GoRedisBatch(ctx context.Context, client *redis.Client, keys []string) error {
	claim, complete := client.Pipeline(), client.Pipeline()
	for _, key := range keys {
		claim.SetArgs(ctx, key, token, redis.SetArgs{Mode: "NX", Get: true, TTL: Lease})
		complete.SetArgs(ctx, key, done, redis.SetArgs{Get: true, TTL: Window})
	}
	claimed, err := claim.Exec(ctx)
	if err != nil && len(claimed) != len(keys) {
		return err
	}
	for i, cmd := range claimed {
		if err := nilReply(keys[i], cmd.Err()); err != nil {
			return err
		}
	}
	_, err = complete.Exec(ctx)
	return err
}
