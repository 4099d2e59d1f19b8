package peer

import (
	"context"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// Redislock is bsm/redislock as people use it to run something once: look, lock, run,
// remember, unlock; four round trips, two of them scripts.
func Redislock(client *redis.Client) Peer {
	locker := redislock.New(client)
	return Peer{Name: "redislock: GET, Obtain, SET, Release", Cycle: func(ctx context.Context, key string) error {
		if err := nilReply(key, client.Get(ctx, key).Err()); err != nil {
			return err
		}
		lock, err := locker.Obtain(ctx, key+":lock", Lease, nil)
		if err != nil {
			return err
		}
		if err := client.Set(ctx, key, done, Window).Err(); err != nil {
			return err
		}
		return lock.Release(ctx)
	}}
}

// Redsync only locks and unlocks: it remembers nothing, so a duplicate would run again. Its
// cost is the least that a lock-based design can have.
func Redsync(client *redis.Client) Peer {
	rs := redsync.New(goredis.NewPool(client))
	return Peer{Name: "redsync: Lock, Unlock (remembers nothing)", Cycle: func(ctx context.Context, key string) error {
		mutex := rs.NewMutex(key, redsync.WithExpiry(Lease), redsync.WithTries(1))
		if err := mutex.LockContext(ctx); err != nil {
			return err
		}
		_, err := mutex.UnlockContext(ctx)
		return err
	}}
}
