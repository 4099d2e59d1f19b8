package owned

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// ErrEvicts reports that a server may remove keys when its memory is full. An effect whose mark is
// gone runs again. The error text quotes the server's maxmemory-policy.
var ErrEvicts = errors.New("owned: the server may evict keys")

// Init prepares a prefix: it writes the record of how keys are mapped to partitions, which [New]
// and [Store.Acquire] need. Call it once, by hand or from the step that deploys for the first time,
// and never when a process starts. A server that has lost everything looks like a new server, and
// an Init on every start would treat it as new.
//
// If the record exists, Init repairs what was lost. A partition of which Redis has lost marks, or
// everything, can then be acquired again, and every key of it is claimed at the inner store for
// Window+Hold. Effects whose marks were lost run again when they are redelivered: by calling Init
// you accept that. If the record itself was lost with everything else, nothing shows that there was
// any data. The inner store is asked only for keys whose mark says so, and these marks are lost,
// too. So an inner store on another server should begin anew as well.
//
// It returns [ErrOtherSettings] for other options than those of the first Init. It takes a few
// round trips, and one for each 256 partitions on record. Calling it again is harmless.
func Init(ctx context.Context, client redis.UniversalClient, opts Options) error {
	if ctx == nil {
		return input("Context", "is nil")
	}
	if problem := script.ClientProblem(client); problem != "" {
		return input("Client", problem)
	}
	opts, err := opts.complete()
	if err != nil {
		return err
	}
	if err := checkServers(ctx, client); err != nil {
		return err
	}
	return newRegistry(client, &opts).boot(ctx)
}

func (r *registry) boot(ctx context.Context) error {
	for range mapTries {
		m, _, err := r.read(ctx)
		if err != nil {
			return err
		}
		if m != nil {
			return r.repair(ctx, m)
		}
		if done, err := r.swap(ctx, "", &mapRecord{settings: r.settings}); done || err != nil {
			return err
		}
	}
	return errMapBusy
}

// repair writes the head of each partition that has no head, or whose head says lost. It tells the
// version of the map to partitions that have lost it. It does so before changes are continued,
// because a change stops at such a partition.
func (r *registry) repair(ctx context.Context, m *mapRecord) error {
	for source, s := range m.sources {
		heads, err := r.heads(ctx, source, s.count)
		if err != nil {
			return err
		}
		var calls []script.Call
		for number, head := range heads {
			if head == nil || head.Lost || head.MapVersion < s.version {
				at := int32(number) // below maxCount
				calls = append(calls, r.remap(source, at, script.Remap{
					MapVersion: s.version, Span: r.span(), Bear: true,
				}))
			}
		}
		for _, reply := range r.runner.Run(ctx, calls) {
			if reply.Err != nil || reply.Answer != script.AnswerMapped {
				return fmt.Errorf("owned: Init of a partition of %q: script answered %q: %w",
					source, reply.Answer, reply.Err)
			}
		}
	}
	_, err := r.settled(ctx)
	return err
}

// heads reads the heads of all partitions of a source. It returns nil for a partition without a
// head.
func (r *registry) heads(ctx context.Context, source string,
	count int32) ([]*script.State, error) {
	all := make([]*script.State, 0, count)
	for from := int32(0); from < count; from += r.batch {
		keys := make([]string, 0, r.batch)
		for number := from; number < min(from+r.batch, count); number++ {
			n := newNames(r.prefix, source, number)
			keys = append(keys, n.head)
		}
		some, err := readHeads(ctx, r.client, keys)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// readHeads reads heads in one pipeline. It returns nil for a head that does not exist.
func readHeads(ctx context.Context, client redis.UniversalClient,
	keys []string) ([]*script.State, error) {
	type got struct {
		cmds []*redis.MapStringStringCmd
		err  error
	}
	g, err := script.Within(ctx, func() (g got) {
		pipe := client.Pipeline()
		for _, key := range keys {
			g.cmds = append(g.cmds, pipe.HGetAll(ctx, key))
		}
		_, g.err = script.Exec(ctx, client, pipe)
		return g
	})
	if err = errors.Join(err, g.err); err != nil {
		return nil, fmt.Errorf("owned: reading heads: %w", err)
	}
	heads := make([]*script.State, len(keys))
	for i, cmd := range g.cmds {
		if heads[i], err = script.ReadHead(cmd.Val()); err != nil {
			return nil, fmt.Errorf("owned: %s: %w", keys[i], err)
		}
	}
	return heads, nil
}

// agree checks, for New, that no server may evict marks, and that there is a record with our
// settings.
func (r *registry) agree(ctx context.Context) error {
	if err := checkServers(ctx, r.client); err != nil {
		return err
	}
	m, _, err := r.read(ctx)
	if err == nil && m == nil {
		err = fmt.Errorf("%w: there is no %s; see Init", ErrNotInitialized, r.key)
	}
	return err
}

// checkServers refuses a client that reads from replicas, which may not have a mark yet, and a
// server, or a master of a Cluster, that may evict keys. A server that does not report its policy,
// such as a server for tests, passes.
func checkServers(ctx context.Context, client redis.UniversalClient) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		one, err := script.Within(ctx, func() error { return checkServer(ctx, client) })
		return errors.Join(err, one)
	}
	if o := cluster.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
		return input("Client",
			"reads from replicas, which may not have a mark yet: ReadOnly, RouteByLatency and RouteRandomly must be off")
	}
	found, err := script.Within(ctx, func() error {
		var mu sync.Mutex
		var all []error
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			err := checkServer(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, err)
			return nil
		})
		mu.Lock() // go-redis waits for all its visits, but the race detector wants to know
		defer mu.Unlock()
		return errors.Join(append(all, err)...)
	})
	return errors.Join(err, found)
}

// checkServer looks at one server.
func checkServer(ctx context.Context, client redis.UniversalClient) error {
	text, err := client.Info(ctx, "memory").Result()
	var refusal redis.Error
	if errors.As(err, &refusal) && strings.Contains(err.Error(), "not supported") {
		return nil // an embedded server
	}
	if err != nil {
		return fmt.Errorf("owned: INFO of Redis: %w", err)
	}
	for line := range strings.Lines(text) {
		policy, found := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:")
		if found && policy != "noeviction" {
			return fmt.Errorf("%w: its maxmemory-policy is %.40q, and must be noeviction",
				ErrEvicts, policy)
		}
	}
	return nil
}
