package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter"
)

const (
	lease = 30 * time.Second
	// scanned is the COUNT of a SCAN.
	scanned = 1000
	// fullShare of maxmemory is too much.
	fullShare = 0.8
)

// onRedis is a Redis.
type onRedis struct {
	o      *Options
	client redis.UniversalClient
	prefix string
	window time.Duration // keys that nobody removes expire
	d      *dedup.Deduper
}

func newRedis(o *Options, name string) (*onRedis, error) {
	o.Server.MinPool = o.Workers
	client, err := o.Server.OpenRedis()
	return &onRedis{o: o, client: client, prefix: name, window: max(5*time.Minute, 2*o.For)}, err
}

func (r *onRedis) title() string { return "redis " + r.o.Layout.String() }

func (r *onRedis) close() { _ = r.client.Close() }

// look wants room, and a server that evicts nothing; and what removes the keys must be allowed.
func (r *onRedis) look(ctx context.Context) error {
	_, cluster := r.client.(*redis.ClusterClient)
	err := r.masters(ctx, func(ctx context.Context, node *redis.Client) error {
		info := node.InfoMap(ctx)
		switch policy := info.Item("Memory", "maxmemory_policy"); {
		case info.Err() != nil:
			return info.Err()
		case info.Item("Cluster", "cluster_enabled") == "1" && !cluster:
			return errors.New("the server is part of a Cluster: add --cluster")
		case r.o.Force:
		case policy != "" && policy != "noeviction":
			return fmt.Errorf("maxmemory-policy is %s: it would evict the keys of others to make room (--force runs it anyway)", policy)
		case fullOf(info):
			return fmt.Errorf("more than %.0f %% of maxmemory are in use (--force runs it anyway)",
				100*fullShare)
		}
		if err := node.Scan(ctx, 0, r.prefix+"*", 1).Err(); err != nil {
			return fmt.Errorf("SCAN and DEL are needed to remove the keys again: %w", err)
		}
		return nil
	})
	if err == nil {
		if err = r.client.Del(ctx, r.prefix+":none").Err(); err != nil {
			err = fmt.Errorf("SCAN and DEL are needed to remove the keys again: %w", err)
		}
	}
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	return nil
}

// fullOf reports whether more than fullShare is used.
func fullOf(info *redis.InfoCmd) bool {
	limit, _ := strconv.ParseFloat(info.Item("Memory", "maxmemory"), 64)
	used, _ := strconv.ParseFloat(info.Item("Memory", "used_memory"), 64)
	return limit > 0 && used > fullShare*limit
}

func (r *onRedis) full(ctx context.Context) (full bool, err error) {
	err = r.masters(ctx, func(ctx context.Context, node *redis.Client) error {
		info := node.InfoMap(ctx)
		full = full || fullOf(info)
		return info.Err()
	})
	return full, err
}

// masters asks one after the other on a Cluster: what they return needs no lock.
func (r *onRedis) masters(ctx context.Context,
	ask func(context.Context, *redis.Client) error) error {
	var mu sync.Mutex
	each := func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return ask(ctx, node)
	}
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, each)
	case *redis.Client:
		return each(ctx, c)
	}
	return fmt.Errorf("--redis: a %T cannot be measured", r.client)
}

func (r *onRedis) open(ctx context.Context) error {
	opts := redisadapter.Options{ // what the server may lose is doctor's concern
		Prefix: r.prefix, Layout: r.o.Layout, AllowEviction: true,
		OnFinding: func(preflight.Finding) {},
	}
	if r.o.Layout == redisadapter.Compact {
		opts.Window, opts.ExpectedKeys, opts.Secret = r.window, r.o.MaxKeys,
			[]byte(rand.Text())
	}
	store, err := redisadapter.New(ctx, r.client, opts)
	if err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	// These have no expiry of their own. The store that is open does not read them again.
	for _, name := range []string{":layout", ":irreversible_complete", ":irreversible_by_slot"} {
		if err := r.client.PExpire(ctx, r.prefix+name, 2*r.window).Err(); err != nil {
			return fmt.Errorf("--redis: %w", err)
		}
	}
	r.d, err = dedup.New(store, dedup.Config{Namespace: "bench", Window: r.window, LeaseTTL: lease,
		Hold: r.window, SeenOnly: true})
	return err
}

func (r *onRedis) send(ctx context.Context, key string) (duplicate bool, err error) {
	duplicate = true
	_, err = dedup.Do(ctx, r.d, key, func(context.Context) (struct{}, error) {
		duplicate = false
		return struct{}{}, nil
	})
	return duplicate, err
}

// remains names what a killed run leaves.
func (r *onRedis) remains() string {
	return fmt.Sprintf("keys that begin with %s; they expire within %v, or, with host and port of each master: redis-cli -h HOST -p PORT --scan --pattern '%s*' | xargs -n 1 redis-cli -h HOST -p PORT del", r.prefix, 2*r.window, r.prefix)
}

// clean has the calls under way end first.
func (r *onRedis) clean(ctx context.Context) error {
	if r.d != nil {
		closing, cancel := context.WithTimeout(ctx, lease)
		_ = r.d.Close(closing) // what it gives up is removed here
		cancel()
	}
	return r.masters(ctx, r.remove)
}

// remove deletes by name on one master. Keys of a Cluster's slots go one by one, in a pipeline.
func (r *onRedis) remove(ctx context.Context, node *redis.Client) error {
	for cursor := uint64(0); ; {
		names, next, err := node.Scan(ctx, cursor, r.prefix+"*", scanned).Result()
		if err != nil {
			return err
		}
		if len(names) > 0 {
			_, err = node.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, name := range names {
					if strings.HasPrefix(name, r.prefix) {
						p.Del(ctx, name)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
