package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Version of the server, or what is embedded.
func (s *Server) Version(ctx context.Context) (string, error) {
	if s.Embedded {
		return "embedded miniredis", nil
	}
	info, err := s.info(ctx, "server")
	return info["redis_version"], err
}

// Kind says in words where the server is.
func (s *Server) Kind() string {
	switch {
	case s.Embedded:
		return "embedded miniredis"
	case s.Own:
		return "Redis on loopback, without persistence"
	default:
		return "a Redis that others use"
	}
}

// CPU is the time that the thread which executes commands has used since the start.
func (s *Server) CPU(ctx context.Context) (time.Duration, error) {
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

// Memory is what the server has allocated, in bytes.
func (s *Server) Memory(ctx context.Context) (int64, error) {
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
func (s *Server) Empty(ctx context.Context) error {
	if !s.Own {
		return errors.New("server: others use this Redis: it is not emptied")
	}
	return s.client.FlushAll(ctx).Err()
}

// Client returns a new client of the server; the caller closes it.
func (s *Server) Client(db, pool int) *redis.Client {
	return NewClient(s.Addr, db, pool)
}

// NewClient returns a go-redis client as the benchmarks use it: RESP2 or 3 as go-redis
// chooses, with room for every caller, and with deadlines that count.
func NewClient(addr string, db, pool int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, DB: db, PoolSize: pool, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, PoolTimeout: time.Minute, ContextTimeoutEnabled: true})
}

func (s *Server) info(ctx context.Context, section string) (map[string]string, error) {
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
