package guard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// The record of evictions is a key without an expiry, "PREFIX:evictions", with one line "RUN COUNT"
// for each master. COUNT is how many keys that server process had evicted when the guard was last
// closed for it, or when Init was called. A server that has evicted more did so while no process of
// ours was looking, and the next process to start closes the guard for it. For a server that is not
// in the record the count starts at zero, and so it does for one that has evicted the record
// itself.

// recordedServers bounds the lines that are read.
const recordedServers = 4096

func (c *Canaries) evictionsKey() string { return c.prefix + ":evictions" }

// readEvictions returns the record, by run id. A value that cannot be read as a record counts as an
// empty one.
func (c *Canaries) readEvictions(ctx context.Context) (map[string]uint64, error) {
	value, err := c.Client.Get(ctx, c.evictionsKey()).Result()
	if err != nil && !errors.Is(err, redis.Nil) && wire.Classify(err) != wire.ClassUnreadable {
		return nil, err
	}
	return parseEvictions(value), nil
}

func parseEvictions(value string) map[string]uint64 {
	counts := make(map[string]uint64)
	for line := range strings.Lines(value) {
		run, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if n, err := strconv.ParseUint(text, 10, 64); err == nil && len(counts) < recordedServers {
			counts[run] = n
		}
	}
	return counts
}

// writeEvictions replaces the record by the counts that servers have reported.
func (c *Canaries) writeEvictions(ctx context.Context, heard map[string]wire.Info) error {
	var b strings.Builder
	for addr, i := range heard {
		if n, known := i.Count("evicted_keys"); known && n > 0 {
			fmt.Fprintf(&b, "%s %d\n", runOf(addr, i), n)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return c.Client.Set(ctx, c.evictionsKey(), b.String(), 0).Err()
}

// RecordEvictions asks every server, and writes the record.
func (c *Canaries) RecordEvictions(ctx context.Context) error {
	var mu sync.Mutex
	heard := make(map[string]wire.Info)
	_, err := wire.EachServer(ctx, c.Client,
		func(ctx context.Context, addr string, node redis.UniversalClient) error {
			fields, err := wire.AskInfo(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			heard[addr] = fields
			return err
		})
	if err != nil {
		return err
	}
	mu.Lock() // go-redis waits for all its visits, but the race detector wants to know
	defer mu.Unlock()
	return c.writeEvictions(ctx, heard)
}

// MayEvict reports whether a server may evict keys, or does not say. Without a limit of memory no
// key is evicted, whatever the policy.
func MayEvict(i wire.Info) bool {
	if i.Embedded() || i["maxmemory_policy"] == "noeviction" {
		return false
	}
	limit, known := i.Count("maxmemory")
	return limit > 0 || !known
}
