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
	// fullShare is the share of maxmemory above which a server counts as full.
	fullShare = 0.8
)

// onRedis is a Redis server or Cluster.
type onRedis struct {
	o      *Options
	client redis.UniversalClient
	prefix string
	window time.Duration // after this time, keys that were not removed expire
	d      *dedup.Deduper
}

func newRedis(o *Options, name string) (*onRedis, error) {
	o.Server.MinPool = o.Workers
	client, err := o.Server.OpenRedis()
	return &onRedis{o: o, client: client, prefix: name, window: max(5*time.Minute, 2*o.For)}, err
}

func (r *onRedis) title() string { return "redis " + r.o.Layout.String() }

func (r *onRedis) close() { _ = r.client.Close() }

// look requires room, a server that evicts nothing, and the right to remove the keys.
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

// fullOf reports whether more than fullShare of maxmemory is used.
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

// masters asks the masters of a Cluster one after another, so ask needs no lock.
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
	opts := redisadapter.Options{ // doctor reports what the server may lose
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
	// These keys have no expiry of their own, and the open store does not read them again, so they
	// can get one here.
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

// remains describes what a killed run leaves behind.
func (r *onRedis) remains() string {
	return fmt.Sprintf("keys that begin with %s; they expire within %v, or, with host and port of each master: redis-cli -h HOST -p PORT --scan --pattern '%s*' | xargs -n 1 redis-cli -h HOST -p PORT del", r.prefix, 2*r.window, r.prefix)
}

// clean first lets running calls end.
func (r *onRedis) clean(ctx context.Context) error {
	if r.d != nil {
		closing, cancel := context.WithTimeout(ctx, lease)
		_ = r.d.Close(closing) // the keys of calls that it gives up are removed below
		cancel()
	}
	return r.masters(ctx, r.remove)
}

// remove deletes keys by name on one master. Because of the slots of a Cluster, each key has its
// own DEL, in a pipeline.
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
