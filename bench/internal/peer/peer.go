// Package peer holds what Onceward is compared with: bare commands through the common
// clients, and libraries that people use for the same job. Every peer remembers a key that
// is new and says whether it was, unless its name says otherwise.
package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// The times of every side, ours too. The window is long enough for nothing to expire while
// it is timed, and for buckets to be dropped as they are in practice.
const (
	Lease  = 10 * time.Second
	Window = 10 * time.Minute
)

// token stands for an owner: as long as a random one in text.
const token = "0123456789abcdef0123456789ab"

// done is the value of a finished key.
const done = "1"

// Cycle claims one new key and marks it done.
type Cycle func(ctx context.Context, key string) error

// Peer is one way of doing cycles one by one.
type Peer struct {
	Name  string
	Cycle Cycle
	// Close may be nil.
	Close func()
}

var errNotNew = errors.New("the key is not new")

func notNew(key string) error { return fmt.Errorf("%s: %w", key, errNotNew) }

// nilReply takes "there was nothing" for success, and anything that was there for a failure.
func nilReply(key string, err error) error {
	switch {
	case errors.Is(err, redis.Nil):
		return nil
	case err == nil:
		return notNew(key)
	default:
		return err
	}
}
