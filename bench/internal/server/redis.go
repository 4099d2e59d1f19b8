package server

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

// Redis is a running Redis.
type Redis struct {
	harness.Server
	Addr string // host:port
	Own  bool   // nobody else uses it: it may be emptied, and its memory compared
	// Embedded says that it runs in this process: it has no CPU time and no memory of its
	// own, and its work counts as the client's.
	Embedded bool

	client *redis.Client
	stop   func() error
}

// Open starts a Redis or connects to one, and adds it to the run. which is [Private] (without
// persistence), [Durable], [Embedded], [Listed] or host:port. ctx bounds the start only; Close ends
// what Open has begun.
func Open(ctx context.Context, b *harness.Bench, which string) *Redis {
	s := &Redis{Addr: which, stop: func() error { return nil }}
	s.Name, s.Kind, s.Version = "redis", "a Redis that others use", s.version
	b.Servers = append(b.Servers, &s.Server)
	b.Defer(s.Close)
	switch which {
	case Listed:
		s.Own = true
		return s
	case Embedded:
		mini := must.Get(miniredis.Run())
		s.Addr, s.Own, s.Embedded, s.Kind = mini.Addr(), true, true, "embedded miniredis"
		s.stop = func() error { mini.Close(); return nil }
	case Private, Durable:
		p := &process{}
		s.stop = p.stop
		s.Addr, s.Own = p.start(ctx, "redis"), true
		s.Kind = "Redis on loopback, its append-only file synced each second"
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.Addr})
	must.Do(s.client.Ping(ctx).Err())
	if which == Private {
		// The benchmarks compare the cost of commands, not of a disk.
		s.Kind = "Redis on loopback, without persistence"
		must.Do(s.client.ConfigSet(ctx, "appendonly", "no").Err())
	}
	return s
}

// Close stops the server if Open has started it.
func (s *Redis) Close() error {
	if s.client == nil {
		return s.stop()
	}
	return errors.Join(s.client.Close(), s.stop())
}

func (s *Redis) version(ctx context.Context) string {
	if s.Embedded {
		return "embedded miniredis"
	}
	return s.info(ctx, "Server")["redis_version"]
}

// CPU reads the time that the thread which executes commands has used since the start; nil for the
// embedded one.
func (s *Redis) CPU() harness.CPU {
	if s.Embedded {
		return nil
	}
	return func(ctx context.Context) time.Duration {
		info, total := s.info(ctx, "CPU"), 0.0
		for _, mode := range []string{"used_cpu_sys", "used_cpu_user"} {
			text, ok := info[mode+"_main_thread"]
			if !ok {
				text = info[mode]
			}
			total += must.Get(strconv.ParseFloat(text, 64))
		}
		return time.Duration(total * float64(time.Second))
	}
}

// Memory is what the server has allocated, in bytes; 0 where it is not its own, or not known.
func (s *Redis) Memory(ctx context.Context) int {
	if s.Embedded || !s.Own {
		return 0
	}
	return must.Get(strconv.Atoi(s.info(ctx, "Memory")["used_memory"]))
}

// Empty removes every key of every database; it refuses on a server that others use.
func (s *Redis) Empty(ctx context.Context) {
	must.True(s.Own, "server: others use this Redis: it is not emptied")
	must.Do(s.client.FlushAll(ctx).Err())
}

// Clear does so, and nothing on a server that others use.
func (s *Redis) Clear(ctx context.Context) {
	if s.Own {
		s.Empty(ctx)
	}
}

// NewClient returns a go-redis client as the benchmarks use it, for the time of a setup: RESP2 or 3
// as go-redis chooses, with room for every caller, and with deadlines that count.
func NewClient(setup *harness.Setup, addr string, db, pool int) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, DB: db, PoolSize: pool,
		ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, PoolTimeout: time.Minute,
		ContextTimeoutEnabled: true})
	setup.Defer(client.Close)
	return client
}

func (s *Redis) info(ctx context.Context, section string) map[string]string {
	return must.Get(s.client.InfoMap(ctx, section).Result())[section]
}
