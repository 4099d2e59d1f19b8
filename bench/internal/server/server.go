// Package server gives the benchmarks a Redis: a process of their own, an embedded one, or
// one that is named; and a network that is slower than loopback.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Kinds of server that [Open] knows by name; anything else is an address.
const (
	Private  = "private"
	Durable  = "durable"
	Embedded = "embedded"
)

// Server is a running Redis.
type Server struct {
	// Addr is host:port.
	Addr string
	// Own says that nobody else uses it, so that it may be emptied and its memory compared.
	Own bool
	// Embedded says that it runs in this process: it has no CPU time and no memory of its
	// own, and its work counts as the client's.
	Embedded bool

	client *redis.Client
	stop   func() error
}

// Open starts a server or connects to one. which is "private" (a redis-server process
// without persistence on loopback), "durable" (one with an append-only file that is synced each second), "embedded" (miniredis) or host:port. A port of 0 is any
// free one. ctx bounds the start only; Close stops it.
func Open(ctx context.Context, which string, port int) (*Server, error) {
	switch which {
	case Private, Durable:
		return private(ctx, port, which == Durable)
	case Embedded:
		mini, err := miniredis.Run()
		if err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
		return open(ctx, &Server{Addr: mini.Addr(), Own: true, Embedded: true, stop: func() error { mini.Close(); return nil }})
	default:
		return open(ctx, &Server{Addr: which, stop: func() error { return nil }})
	}
}

func open(ctx context.Context, s *Server) (*Server, error) {
	s.client = redis.NewClient(&redis.Options{Addr: s.Addr})
	if err := s.client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("server: Redis at %s: %w", s.Addr, err), s.Close())
	}
	return s, nil
}

// Close stops the server if Open has started it.
func (s *Server) Close() error { return errors.Join(s.client.Close(), s.stop()) }

// private starts redis-server, or the program that ONCEWARD_REDIS_SERVER names.
func private(ctx context.Context, port int, durable bool) (*Server, error) {
	program := os.Getenv("ONCEWARD_REDIS_SERVER")
	if program == "" {
		program = "redis-server"
	}
	if port == 0 {
		free, err := FreePort(ctx)
		if err != nil {
			return nil, err
		}
		port = free
	}
	dir, err := os.MkdirTemp("", "onceward-bench")
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	file := "no"
	if durable {
		file = "yes"
	}
	// By default without persistence: what is compared is what a command costs, not what a disk does.
	//nolint:noctx // it is stopped by Close, gently
	cmd := exec.Command(program, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir,
		"--save", "", "--appendonly", file, "--maxmemory-policy", "noeviction", "--daemonize", "no")
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("server: %w (name another with ONCEWARD_REDIS_SERVER, or use an embedded one)", err), os.RemoveAll(dir))
	}
	gone := make(chan struct{})
	var exit error
	go func() { exit = cmd.Wait(); close(gone) }()
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Own: true}
	s.client = redis.NewClient(&redis.Options{Addr: s.Addr})
	s.stop = func() error { return stop(cmd, gone, dir) }
	if err := s.wait(ctx, gone, &exit); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// stop ends the process. How it ends does not matter: it holds nothing to be kept, and a
// terminal sends Ctrl-C to it as well.
func stop(cmd *exec.Cmd, gone <-chan struct{}, dir string) error {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
		_ = cmd.Process.Kill()
		<-gone
	}
	return os.RemoveAll(dir)
}

// wait polls until the server answers, which takes some tens of milliseconds. exit may be read
// once gone is closed.
func (s *Server) wait(ctx context.Context, gone <-chan struct{}, exit *error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.client.Ping(ctx).Err() == nil {
			return nil
		}
		select {
		case <-gone:
			return fmt.Errorf("server: redis-server ended at once, is %s taken? %w", s.Addr, *exit)
		case <-ctx.Done():
			return fmt.Errorf("server: redis-server at %s: %w", s.Addr, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// FreePort returns a port of loopback that nobody listens on now.
func FreePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("server: %w", err)
	}
	defer func() { _ = l.Close() }()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("server: %v is no TCP address", l.Addr())
	}
	return addr.Port, nil
}
