package others_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	fiberredis "github.com/gofiber/storage/redis/v3"
	"github.com/redis/go-redis/v9"
)

const watermillModule = "github.com/ThreeDotsLabs/watermill"

// locked is the usual code under a lock that remembers nothing: look, run, set.
func (w *worker) locked(ctx context.Context, client *redis.Client, m uint32) error {
	_, err := client.Get(ctx, w.key(m)).Result()
	if err == nil {
		return nil
	}
	if !errors.Is(err, redis.Nil) {
		return err
	}
	if err := w.effect(m, nothing); err != nil {
		return err
	}
	return client.Set(ctx, w.key(m), "done", window).Err()
}

// overRedsync is README, "Usage": a mutex by name over one pool, unlocked after the work. It tries
// once, and not 32 times: the source tries again.
func overRedsync(_ context.Context, w *worker) (handle, func() error, error) {
	client := w.client()
	rs := redsync.New(goredis.NewPool(client))
	return func(ctx context.Context, m uint32) error {
		mutex := rs.NewMutex(w.key(m)+":lock", redsync.WithExpiry(lease))
		if err := mutex.TryLockContext(ctx); err != nil {
			var taken *redsync.ErrTaken
			if errors.As(err, &taken) {
				return errBusy
			}
			return err
		}
		defer func() { _, _ = mutex.UnlockContext(ctx) }()
		return w.locked(ctx, client, m)
	}, client.Close, nil
}

// overRedislock is README, "Examples": Obtain, and Release deferred. The default is to try once.
func overRedislock(_ context.Context, w *worker) (handle, func() error, error) {
	client := w.client()
	locker := redislock.New(client)
	return func(ctx context.Context, m uint32) error {
		lock, err := locker.Obtain(ctx, w.key(m)+":lock", lease, nil)
		if errors.Is(err, redislock.ErrNotObtained) {
			return errBusy
		}
		if err != nil {
			return err
		}
		defer func() { _ = lock.Release(ctx) }()
		return w.locked(ctx, client, m)
	}, client.Close, nil
}

// watermillMemory is the Deduplicator as its comment shows it, but with SHA-256 instead of its 32
// bits of Adler.
func watermillMemory(_ context.Context, w *worker) (handle, func() error, error) {
	seen, err := middleware.NewMapExpiringKeyRepository(window)
	if err != nil {
		return nil, nil, err
	}
	return w.deduplicated(seen), func() error { return nil }, nil
}

// watermillRedis has the keys in Redis, as the comment of NewMapExpiringKeyRepository advises for
// several processes. Watermill ships no such repository; this is the obvious one.
func watermillRedis(_ context.Context, w *worker) (handle, func() error, error) {
	client := w.client()
	return w.deduplicated(redisKeys{client, w}), client.Close, nil
}

type redisKeys struct {
	client *redis.Client
	w      *worker
}

// IsDuplicate implements middleware.ExpiringKeyRepository.
func (k redisKeys) IsDuplicate(ctx context.Context, key string) (bool, error) {
	first, err := k.client.SetNX(ctx, fmt.Sprintf("%s:%x", k.w.cfg.Prefix, key), 1, window).Result()
	return !first, err
}

// deduplicated is a handler behind the middleware, as the Router runs it: an error is a Nack.
func (w *worker) deduplicated(seen middleware.ExpiringKeyRepository) handle {
	d := middleware.Deduplicator{KeyFactory: middleware.NewMessageHasherSHA256(1 << 20),
		Repository: seen, Timeout: 10 * time.Second}
	return func(ctx context.Context, m uint32) error {
		msg := message.NewMessage(w.key(m), []byte(w.key(m)))
		msg.SetContext(ctx)
		_, err := d.Middleware(func(*message.Message) ([]*message.Message, error) {
			return nil, w.effect(m, nothing)
		})(msg)
		return err
	}
}

// overFiber is docs/middleware/idempotency.md: app.Use with a Storage that all processes share, and
// a client that asks until it gets a 2xx.
func overFiber(_ context.Context, w *worker) (handle, func() error, error) {
	client := w.client()
	app := fiber.New()
	app.Use(idempotency.New(idempotency.Config{Storage: fiberredis.NewFromConnection(client),
		Lifetime: window}))
	app.Post("/:message", func(c fiber.Ctx) error {
		var m uint32
		if _, err := fmt.Sscan(c.Params("message"), &m); err != nil {
			return err
		}
		if err := w.effect(m, nothing); err != nil {
			return fiber.NewError(fiber.StatusServiceUnavailable, err.Error())
		}
		return c.SendString("done")
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	go func() { _ = app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	return func(ctx context.Context, m uint32) error {
		url := fmt.Sprintf("http://%s/%d", listener.Addr(), m)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(nil))
		if err != nil {
			return err
		}
		// The key is a UUID by default; that of a message is the same in all processes of a row.
		req.Header.Set("X-Idempotency-Key", fmt.Sprintf("00000000-0000-4000-8000-%012d", m))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode/100 != 2 {
			return fmt.Errorf("%s: %s", res.Status, body)
		}
		return nil
	}, func() error { return errors.Join(app.Shutdown(), client.Close()) }, nil
}
