package redisadapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/compact"
	"github.com/onceward/onceward/redisadapter/internal/engine"
	"github.com/onceward/onceward/redisadapter/internal/full"
	"github.com/onceward/onceward/redisadapter/internal/guard"
	"github.com/onceward/onceward/redisadapter/internal/line"
	"github.com/onceward/onceward/redisadapter/internal/wake"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// New returns a Store over client, after having looked at the server: it must answer, be
// of version 7.0 or newer, and let this client run a script on our keys. It takes a few
// round trips and returns at the latest when ctx ends. It writes one key, once: the first
// New of a prefix records the layout there, and later ones must have the same.
//
// A hook of the client must not keep commands after it has returned: the Store uses them again for
// later pipelines.
//
// A nil client, a bad prefix and a *redis.Ring (which moves keys between servers, and so
// forgets claims) are an [*driver.InputError]. A server that cannot be reached or used is
// an error that names its address and wraps the cause; see [Classify].
//
// New returns a [*RefusedError] for a server that is too old or a replica, for a ClusterClient that
// reads from replicas, and for a finding that Options.Strict does not allow. It returns a
// RefusedError, too, for a server that may evict keys (a maxmemory-policy other than noeviction,
// and a maxmemory). Options.AllowEviction accepts that server; so does Options.Amnesia FailClosed,
// whose claims then ask the server each time how many keys it has evicted. The other findings of
// [Preflight] go to Options.OnFinding, and so does a note of everything that the server does not
// say: New does not refuse a user without INFO, unless Options.Amnesia needs it. Only New refuses:
// no later change ends a process that runs.
//
// With Options.Amnesia the canary must exist, or New returns [ErrNoCanary]. A prefix whose keys
// were written with another layout, secret, window or number of shards is an [ErrOtherLayout]. On a
// full server the first New of a prefix fails with a [driver.ErrStoreFull]; a later one does not.
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
	s := newStore(client, opts)
	if err := s.inspect(ctx); err != nil {
		return nil, err
	}
	s.withhold()
	return s, nil
}

func newStore(client redis.UniversalClient, opts Options) *Store {
	e := &engine.Engine{
		Line:  line.New(opts.runner(client), opts.MaxInFlight, opts.BreakerAfter),
		Clock: &wire.Clock{Client: client},
		Guard: guard.New(client, guard.Config{Prefix: opts.Prefix, Policy: uint8(opts.Amnesia),
			Window: opts.AmnesiaFor, SuspectFor: opts.SuspectFor, Secondary: opts.Secondary,
			Report: opts.OnFinding}),
	}
	wakes := wake.New(client)
	index := redisscript.NewIndex(opts.Prefix, e.Guard.Cluster != nil)
	e.Line.Runner.Keep(index)
	if opts.Layout != Compact {
		e.Layout = full.New(opts.Prefix)
		return &Store{engine: e, opts: opts, wakes: wakes, index: index}
	}
	buckets := compact.New(opts.Prefix, opts.Secret, opts.Window, opts.ExpectedKeys)
	e.Layout, opts.Secret = buckets, nil
	return &Store{engine: e, opts: opts, wakes: wakes, index: index, buckets: buckets}
}

// inspect asks every server that may hold our keys who it is, then tries a script.
func (s *Store) inspect(ctx context.Context) error {
	client := s.client()
	seen, err := redisscript.Within(ctx, func() inspection { return s.look(ctx) })
	if err != nil {
		return fmt.Errorf("redisadapter: %s did not answer in time: %w", wire.Address(client), err)
	}
	if seen.err != nil {
		return seen.err
	}
	s.engine.Clock.Exact = seen.embedded
	s.evicted = seen.evicting
	if l, ok := s.engine.Layout.(*full.Layout); ok {
		l.Compare(seen.all(comparesInSet))
	}
	s.engine.Guard.Memory.Evicting(seen.servers...)
	s.engine.Line.KeepsDeadlines(!seen.embedded && redisscript.KeepsDeadlines(client) &&
		!s.opts.Durability.waits())
	if err := refuse(seen.findings, s.opts, client, seen.counted()); err != nil {
		return err
	}
	// The all-zero ID is never a key's digest. A server too old for the scripts, or a user without
	// the right to run them on our keys, fails here and not when the first messages come.
	if ans := s.Lookup(ctx, make([]driver.ID, 1))[0]; ans.Err != nil {
		return fmt.Errorf("redisadapter: cannot run scripts on keys %q at %s: %w",
			s.opts.Prefix+":*", wire.Address(client), ans.Err)
	}
	opened, err := redisscript.Within(ctx, func() error { return s.join(ctx) })
	return errors.Join(opened, err)
}

// join looks at the canary before it writes the layout: a wrong server has none.
func (s *Store) join(ctx context.Context) error {
	if err := errors.Join(s.engine.Guard.Open(ctx), s.tryDurability(ctx, s.client())); err != nil {
		return err
	}
	return s.agree(ctx)
}

// inspection is what New has seen.
type inspection struct {
	embedded bool
	servers  []wire.Info
	evicting map[string]bool // by address
	findings []preflight.Finding
	err      error
}

// counted reports whether all servers say how many keys they have evicted.
func (i *inspection) counted() bool {
	return !slices.ContainsFunc(i.servers, func(fields wire.Info) bool {
		_, known := fields.Count("evicted_keys")
		return !known && !fields.Embedded()
	})
}

// all reports whether some server was seen, and is returns true for all servers.
func (i *inspection) all(is func(wire.Info) bool) bool {
	return len(i.servers) > 0 && !slices.ContainsFunc(i.servers,
		func(fields wire.Info) bool { return !is(fields) })
}

// look asks every server who it is.
func (s *Store) look(ctx context.Context) inspection {
	client := s.client()
	_, cluster := client.(*redis.ClusterClient)
	var mu sync.Mutex // masters are asked in parallel
	seen := inspection{findings: checkClient(client), evicting: make(map[string]bool)}
	reached, err := wire.EachServer(ctx, client,
		func(ctx context.Context, addr string, node redis.UniversalClient) error {
			fields, err := inspectServer(ctx, node, addr)
			if err == nil && !cluster && fields["redis_mode"] == "cluster" {
				err = fmt.Errorf("redisadapter: Redis at %s is part of a Cluster; it needs a redis.ClusterClient "+
					"(redis.UniversalOptions with IsClusterMode)", addr)
			}
			mu.Lock()
			defer mu.Unlock()
			seen.embedded = err == nil && fields.Embedded()
			seen.servers = append(seen.servers, fields)
			seen.evicting[addr] = evicts(fields)
			seen.findings = append(seen.findings, checkServer(ctx, addr, node, fields)...)
			return err
		})
	mu.Lock()
	defer mu.Unlock()
	if seen.err = err; err != nil && reached == 0 {
		seen.err = fmt.Errorf("redisadapter: Redis Cluster at %s cannot be reached: %w",
			wire.Address(client), err)
	}
	return seen
}

// inspectServer returns what INFO says of one server, nil for an embedded one. Whether an embedded
// server, or one that refuses INFO, can be used is decided by the script that inspect tries.
func inspectServer(ctx context.Context, client redis.UniversalClient,
	addr string) (wire.Info, error) {
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("redisadapter: Redis at %s %s: %w", addr, problem(err), err)
	}
	return wire.ServerInfo(ctx, client, addr)
}

// problem says what is wrong with a server that answers a PING with err, and the usual cause.
func problem(err error) string {
	var addr *net.AddrError
	switch {
	case errors.As(err, &addr):
		return "cannot be reached (Addr must be host:port; redis.ParseURL makes the options of a URL)"
	case redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "WRONGPASS"):
		return "refuses this client (set Username and Password of its options)"
	case wire.BrokenConnection(err), errors.Is(err, io.EOF):
		return "cannot be reached (it accepts connections and closes them: is it at maxclients?)"
	}
	return "cannot be reached"
}

// withhold keeps all calls of a store with Options.WrappedBy until OpenFor. A caller that reaches
// this store past its wrapper would run the effects of keys that the wrapper has given out.
func (s *Store) withhold() {
	if s.opts.WrappedBy == "" {
		return
	}
	why := input("Options.WrappedBy", fmt.Sprintf(
		"is %q: the keys are claimed through that store, which has not opened this one",
		s.opts.WrappedBy))
	s.engine.Line.Withheld.Store(&why)
}

// OpenFor opens a store with Options.WrappedBy for its calls. The wrapper calls it with its own
// name, when it has agreed with the other processes that it may claim the keys. Any other caller of
// OpenFor runs effects a second time, next to the wrapper's users. A name other than that of
// Options.WrappedBy, and a store that has no wrapper, are an [*driver.InputError]. OpenFor sends
// nothing, and may be called again.
func (s *Store) OpenFor(wrapper string) error {
	switch {
	case s.opts.WrappedBy == "":
		return input("Options.WrappedBy", fmt.Sprintf(
			"is not set: the keys of the prefix are shared with consumers that do not know of %q",
			wrapper))
	case s.opts.WrappedBy != wrapper:
		return input("Options.WrappedBy", fmt.Sprintf("is %q, and the wrapper is %q",
			s.opts.WrappedBy, wrapper))
	}
	s.engine.Line.Withheld.Store(nil)
	return nil
}
