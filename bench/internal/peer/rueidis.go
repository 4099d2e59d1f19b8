package peer

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// Rueidis is the two commands through rueidis, which pipelines the commands of concurrent
// callers by itself. flushDelay is its MaxFlushDelay: how long it may wait for more.
func Rueidis(addr string, flushDelay time.Duration) (Peer, error) {
	name := "rueidis"
	if flushDelay > 0 {
		name = fmt.Sprintf("rueidis, MaxFlushDelay %v", flushDelay)
	}
	client, err := RueidisClient(addr, flushDelay)
	if err != nil {
		return Peer{}, err
	}
	return Peer{Name: name, Close: client.Close,
		Cycle: func(ctx context.Context, key string) error {
			if err := wasNew(key, client.Do(ctx, claimCommand(client, key))); err != nil {
				return err
			}
			_, err := client.Do(ctx, completeCommand(client, key)).ToString()
			return err
		}}, nil
}

// RueidisClient connects with client-side caching off: no key is read twice here.
func RueidisClient(addr string, flushDelay time.Duration) (rueidis.Client, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, DisableCache: true, MaxFlushDelay: flushDelay,
		ConnWriteTimeout: 30 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("peer: rueidis: %w", err)
	}
	return client, nil
}

// RueidisBatch does a batch in two DoMulti.
func RueidisBatch(ctx context.Context, client rueidis.Client, keys []string) error {
	cmds := make(rueidis.Commands, len(keys))
	for i, key := range keys {
		cmds[i] = claimCommand(client, key)
	}
	for i, reply := range client.DoMulti(ctx, cmds...) {
		if err := wasNew(keys[i], reply); err != nil {
			return err
		}
	}
	for i, key := range keys {
		cmds[i] = completeCommand(client, key)
	}
	for _, reply := range client.DoMulti(ctx, cmds...) {
		if err := reply.Error(); err != nil {
			return err
		}
	}
	return nil
}

func claimCommand(client rueidis.Client, key string) rueidis.Completed {
	return client.B().Set().Key(key).Value(token).Nx().Get().PxMilliseconds(
		Lease.Milliseconds()).Build()
}

func completeCommand(client rueidis.Client, key string) rueidis.Completed {
	return client.B().Set().Key(key).Value(done).Get().PxMilliseconds(Window.Milliseconds()).Build()
}

func wasNew(key string, reply rueidis.RedisResult) error {
	_, err := reply.ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return nil
	case err == nil:
		return notNew(key)
	default:
		return err
	}
}
