package peer

import (
	"context"

	"github.com/gofiber/fiber/v2/middleware/idempotency"
	fiberredis "github.com/gofiber/storage/redis/v3"
	"github.com/redis/go-redis/v9"
)

// Fiber is the sequence of fiber's idempotency middleware, on its own storage and its own
// lock: Get, Lock, Get, (handler), Set, Unlock. The HTTP request around it is left out. The
// lock is of this process: two servers run the handler twice.
func Fiber(client *redis.Client) Peer {
	storage, lock := fiberredis.NewFromConnection(client), idempotency.NewMemoryLock()
	absent := func(ctx context.Context, key string) error {
		value, err := storage.GetWithContext(ctx, key)
		if err == nil && value != nil {
			return notNew(key)
		}
		return err
	}
	return Peer{Name: "fiber idempotency sequence (lock in process)", Cycle: func(ctx context.Context, key string) error {
		if err := absent(ctx, key); err != nil {
			return err
		}
		if err := lock.Lock(key); err != nil {
			return err
		}
		err := absent(ctx, key)
		if err == nil {
			err = storage.SetWithContext(ctx, key, []byte(done), Window)
		}
		if unlocked := lock.Unlock(key); err == nil {
			err = unlocked
		}
		return err
	}}
}
