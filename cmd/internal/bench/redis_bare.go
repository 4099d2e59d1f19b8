package bench

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// The bare side claims and completes with two plain commands, SET NX GET and SET GET, through a
// client of its own with the same options: what is written by hand. It looks at nothing that can go
// wrong.

const token = "0123456789abcdef"

func (r *onRedis) bareKey(key string) string { return r.prefix + ".bare:" + key }

// value is what a key has when it is done.
func (r *onRedis) value() string {
	if len(r.result) > 0 {
		return string(r.result)
	}
	return "1"
}

func claim(ctx context.Context, c redis.Cmdable, key string) *redis.StatusCmd {
	return c.SetArgs(ctx, key, token, redis.SetArgs{Mode: "NX", Get: true, TTL: lease})
}

func complete(ctx context.Context, c redis.Cmdable, key, value string,
	window time.Duration) *redis.StatusCmd {
	return c.SetArgs(ctx, key, value, redis.SetArgs{Get: true, TTL: window})
}

// fresh reads the answer to a claim.
func fresh(m message, cmd *redis.StatusCmd) (bool, error) {
	err := cmd.Err()
	won := errors.Is(err, redis.Nil)
	switch {
	case err != nil && !won:
		return false, err
	case won && m.dup:
		return false, errRanAgain
	case !won && !m.dup:
		return false, errSkipped
	}
	return won, nil
}

func (r *onRedis) bareOne(ctx context.Context, batch []message) []error {
	key := r.bareKey(batch[0].key)
	won, err := fresh(batch[0], claim(ctx, r.bare, key))
	if won {
		err = complete(ctx, r.bare, key, r.value(), r.o.Window).Err()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func (r *onRedis) bareBatch(ctx context.Context, batch []message) []error {
	errs, claims := make([]error, len(batch)), make([]*redis.StatusCmd, len(batch))
	failed := false
	_, _ = r.bare.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its error
		for i, m := range batch {
			claims[i] = claim(ctx, p, r.bareKey(m.key))
		}
		return nil
	})
	ends := make(map[int]*redis.StatusCmd, len(batch))
	value := r.value()
	_, _ = r.bare.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, m := range batch {
			var won bool
			if won, errs[i] = fresh(m, claims[i]); won {
				ends[i] = complete(ctx, p, r.bareKey(m.key), value, r.o.Window)
			}
			failed = failed || errs[i] != nil
		}
		return nil
	})
	for i, end := range ends {
		if err := end.Err(); err != nil {
			errs[i], failed = err, true
		}
	}
	if !failed {
		return nil
	}
	return errs
}
