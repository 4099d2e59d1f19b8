package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Redis is a running Redis.
type Redis struct {
	// Addr is host:port.
	Addr string
	// Own says that nobody else uses it, so that it may be emptied and its memory compared.
	Own bool
	// Embedded says that it runs in this process: it has no CPU time and no memory of its
	// own, and its work counts as the client's.
	Embedded bool

	kind   string
	client *redis.Client
	stop   func() error
}

// Open starts a Redis or connects to one. which is [Private] (without persistence), [Durable],
// [Embedded], [Listed] or host:port. A port of 0 is any free one. ctx bounds the start only; Close
// stops it.
func Open(ctx context.Context, which string, port int) (*Redis, error) {
	s := &Redis{Addr: which, kind: "a Redis that others use", stop: func() error { return nil }}
	switch which {
	case Listed:
		return &Redis{Own: true}, nil
	case Embedded:
		mini, err := miniredis.Run()
		if err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
		s = &Redis{Addr: mini.Addr(), Own: true, Embedded: true, kind: "embedded miniredis",
			stop: func() error { mini.Close(); return nil }}
	case Private, Durable:
		p, addr, err := start(ctx, "redis", port)
		if err != nil {
			return nil, errors.Join(err, p.stop())
		}
		s = &Redis{Addr: addr, Own: true,
			kind: "Redis on loopback, its append-only file synced each second", stop: p.stop}
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.Addr})
	err := s.client.Ping(ctx).Err()
	if err == nil && which == Private {
		// The benchmarks compare the cost of commands, not of a disk.
		s.kind, err = "Redis on loopback, without persistence",
			s.client.ConfigSet(ctx, "appendonly", "no").Err()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("server: Redis at %s: %w", s.Addr, err), s.Close())
	}
	return s, nil
}

// Close stops the server if Open has started it.
func (s *Redis) Close() error {
	if s.client == nil {
		return nil
	}
	return errors.Join(s.client.Close(), s.stop())
}

// Name is Redis's among the versions.
func (s *Redis) Name() string { return "redis" }

// Kind says in words where the server is.
func (s *Redis) Kind() string { return s.kind }

// Version of the server, or what is embedded.
func (s *Redis) Version(ctx context.Context) (string, error) {
	if s.Embedded {
		return "embedded miniredis", nil
	}
	info, err := s.info(ctx, "server")
	return info["redis_version"], err
}

// CPU reads the time that the thread which executes commands has used since the start; nil for the
// embedded one.
func (s *Redis) CPU() func(context.Context) (time.Duration, error) {
	if s.Embedded {
		return nil
	}
	return func(ctx context.Context) (time.Duration, error) {
		info, err := s.info(ctx, "cpu")
		if err != nil {
			return 0, err
		}
		var total float64
		for _, mode := range []string{"used_cpu_sys", "used_cpu_user"} {
			text, ok := info[mode+"_main_thread"]
			if !ok {
				text = info[mode]
			}
			seconds, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return 0, fmt.Errorf("server: INFO cpu: %s is %q", mode, text)
			}
			total += seconds
		}
		return time.Duration(total * float64(time.Second)), nil
	}
}

// Memory is what the server has allocated, in bytes.
func (s *Redis) Memory(ctx context.Context) (int64, error) {
	info, err := s.info(ctx, "memory")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(info["used_memory"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("server: INFO memory: used_memory is %q", info["used_memory"])
	}
	return n, nil
}

// Empty removes every key of every database; it refuses on a server that others use.
func (s *Redis) Empty(ctx context.Context) error {
	if !s.Own {
		return errors.New("server: others use this Redis: it is not emptied")
	}
	return s.client.FlushAll(ctx).Err()
}

// NewClient returns a go-redis client as the benchmarks use it: RESP2 or 3 as go-redis
// chooses, with room for every caller, and with deadlines that count.
func NewClient(addr string, db, pool int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, DB: db, PoolSize: pool,
		ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, PoolTimeout: time.Minute,
		ContextTimeoutEnabled: true})
}

func (s *Redis) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.client.Info(ctx, section).Result()
	if err != nil {
		return nil, fmt.Errorf("server: INFO %s: %w", section, err)
	}
	return parseInfo(text), nil
}

func parseInfo(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
