package peer

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/onceward/onceward/bench/internal/must"
)

// Rueidis is the two commands through rueidis, which pipelines the commands of concurrent
// callers by itself. flushDelay is its MaxFlushDelay: how long it may wait for more.
func Rueidis(addr string, flushDelay time.Duration) Peer {
	name := "rueidis"
	if flushDelay > 0 {
		name = fmt.Sprintf("rueidis, MaxFlushDelay %v", flushDelay)
	}
	client := RueidisClient(addr, flushDelay)
	return Peer{Name: name, Close: client.Close,
		Cycle: func(ctx context.Context, key string) {
			wasNew(key, client.Do(ctx, claimCommand(client, key)))
			must.Get(client.Do(ctx, completeCommand(client, key)).ToString())
		}}
}

// RueidisClient connects with client-side caching off: no key is read twice here.
func RueidisClient(addr string, flushDelay time.Duration) rueidis.Client {
	return must.Get(rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, DisableCache: true, MaxFlushDelay: flushDelay,
		ConnWriteTimeout: 30 * time.Second,
	}))
}

// RueidisBatch does a batch in two DoMulti.
func RueidisBatch(ctx context.Context, client rueidis.Client, keys []string) {
	cmds := make(rueidis.Commands, len(keys))
	for i, key := range keys {
		cmds[i] = claimCommand(client, key)
	}
	for i, reply := range client.DoMulti(ctx, cmds...) {
		wasNew(keys[i], reply)
	}
	for i, key := range keys {
		cmds[i] = completeCommand(client, key)
	}
	for _, reply := range client.DoMulti(ctx, cmds...) {
		must.Do(reply.Error())
	}
}

func claimCommand(client rueidis.Client, key string) rueidis.Completed {
	return client.B().Set().Key(key).Value(token).Nx().Get().PxMilliseconds(
		Lease.Milliseconds()).Build()
}

func completeCommand(client rueidis.Client, key string) rueidis.Completed {
	return client.B().Set().Key(key).Value(done).Get().PxMilliseconds(Window.Milliseconds()).Build()
}

func wasNew(key string, reply rueidis.RedisResult) {
	if _, err := reply.ToString(); !rueidis.IsRedisNil(err) {
		must.Do(err)
		isNew(key, false)
	}
}
