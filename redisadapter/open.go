package redisadapter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
)

// New returns a Store over client, after having looked at the server: it must answer, be
// of version 7.0 or newer, and let this client run a script on our keys. It takes a few
// round trips, writes nothing, and returns at the latest when ctx ends.
//
// A nil client, a bad prefix and a *redis.Ring (which moves keys between servers, and so
// forgets claims) are an [*dedup.InputError]. A server that cannot be reached or used is
// an error that names its address and wraps the cause; see [Classify].
func New(ctx context.Context, client redis.UniversalClient, opts Options) (*Store, error) {
	if ctx == nil {
		return nil, input("Context", "is nil")
	}
	if problem := redisscript.ClientProblem(client); problem != "" {
		return nil, input("Client", problem)
	}
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	s := &Store{runner: redisscript.NewRunner(client), clock: &clock{client: client}, opts: opts}
	if err := s.inspect(ctx, client); err != nil {
		return nil, err
	}
	return s, nil
}

// inspect asks every server that may hold our keys who it is, then tries a script.
func (s *Store) inspect(ctx context.Context, client redis.UniversalClient) error {
	done := make(chan error, 1) // buffered: go-redis may outlast ctx
	go func() { done <- inspectServers(ctx, client, &s.clock.exact) }()
	select {
	case err := <-done:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return fmt.Errorf("redisadapter: %s did not answer in time: %w", address(client), context.Cause(ctx))
	}
	// The all-zero ID is never a key's digest. A server too old for the scripts, or a user
	// without the right to run them on our keys, shows itself here and not in mid-stream.
	if ans := s.Lookup(ctx, make([]dedup.ID, 1))[0]; ans.Err != nil {
		return fmt.Errorf("redisadapter: cannot run scripts on keys %q at %s: %w", s.opts.Prefix+":*", address(client), ans.Err)
	}
	return nil
}

func inspectServers(ctx context.Context, client redis.UniversalClient, embedded *bool) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		info, err := inspectServer(ctx, client, address(client))
		if err == nil && infoField(info, "redis_mode") == "cluster" {
			err = fmt.Errorf("redisadapter: Redis at %s is part of a Cluster; it needs a redis.ClusterClient "+
				"(redis.UniversalOptions with IsClusterMode)", address(client))
		}
		*embedded = err == nil && info == ""
		return err
	}
	var reached atomic.Bool // masters are asked in parallel
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		reached.Store(true)
		_, err := inspectServer(ctx, node, node.Options().Addr)
		return err
	})
	if err != nil && !reached.Load() {
		return fmt.Errorf("redisadapter: Redis Cluster at %s cannot be reached: %w", address(client), err)
	}
	return err
}

// inspectServer returns what INFO says of one server, empty for one that has no such
// section: an embedded server for tests, about which the script that is tried decides.
func inspectServer(ctx context.Context, client redis.UniversalClient, addr string) (string, error) {
	if err := client.Ping(ctx).Err(); err != nil {
		return "", fmt.Errorf("redisadapter: Redis at %s cannot be reached: %w", addr, err)
	}
	info, err := client.Info(ctx, "server").Result()
	var refusal redis.Error
	if errors.As(err, &refusal) && strings.Contains(err.Error(), "not supported") {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("redisadapter: INFO of Redis at %s: %w", addr, err)
	}
	// 7.0 is the first with flags for scripts. Valkey reports the version of Redis that
	// it is compatible with.
	version := infoField(info, "redis_version")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 7 {
		return "", fmt.Errorf("redisadapter: Redis at %s has version %q; 7.0 or newer is needed", addr, version)
	}
	return info, nil
}

// infoField returns one line of INFO, or "".
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), name+":"); found {
			return value
		}
	}
	return ""
}

// address is what the client was told to connect to.
func address(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().Addr
	case *redis.ClusterClient:
		return strings.Join(c.Options().Addrs, ",")
	}
	return "the given client"
}
