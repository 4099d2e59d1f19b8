package redisscript

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Wait makes a Runner wait, at the end of every pipeline that may write, until its writes have
// reached enough replicas, or the disk.
type Wait struct {
	// Replicas that must have the writes.
	Replicas int
	// Disk says that the server itself, and that number of replicas, must have fsynced the writes
	// to their append-only files (WAITAOF, Redis 7.2).
	Disk bool
	// Timeout of the waiting; after it the result of the writes counts as unknown.
	Timeout time.Duration
	// Key is written before each wait. On a Cluster a tag is added to it.
	Key string

	tag atomic.Uint32 // of the key; it changes when a write is refused
}

// ErrShort is in the Err of a Reply, and the error of a plain command, when too few replicas had
// the writes, or their number is unknown. The writes may be lost with their server.
var ErrShort = errors.New("not on enough replicas")

// NewWaitingRunner returns a Runner that waits.
func NewWaitingRunner(client redis.UniversalClient, w *Wait) *Runner {
	return &Runner{client: client, wait: w}
}

// durably sends commands and waits for them, on a Cluster on every node. A node's own client does
// not follow redirections, so durably follows them, once; after one, it reads the client's map of
// the Cluster again. The result of a command that is redirected a second time counts as unknown.
func (r *Runner) durably(ctx context.Context, cmds []redis.Cmder) {
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		key := r.wait.Key
		if node, ok := r.client.(*redis.Client); ok && r.of != nil {
			key = r.wait.at(ctx, r.of, node)
		}
		r.wait.on(ctx, r.client, cmds, r.wait.write(ctx, key))
		return
	}
	nodes := make(map[*redis.Client][]redis.Cmder)
	for _, cmd := range cmds {
		node, err := cluster.MasterForKey(ctx, keyOf(cmd))
		if err != nil {
			cmd.SetErr(err)
			continue
		}
		nodes[node] = append(nodes[node], cmd)
	}
	r.wait.onEach(ctx, nodes, func(node *redis.Client, _ []redis.Cmder) []redis.Cmder {
		return r.wait.write(ctx, r.wait.at(ctx, cluster, node))
	})
	if again := follow(ctx, cluster, cmds); len(again) > 0 {
		r.wait.onEach(ctx, again, func(_ *redis.Client, cmds []redis.Cmder) []redis.Cmder {
			return r.wait.where(ctx, cmds)
		})
		cluster.ReloadState(ctx)
	}
}

// onEach sends commands to several nodes at the same time, with a write of its own for each node.
func (w *Wait) onEach(ctx context.Context, nodes map[*redis.Client][]redis.Cmder,
	write func(*redis.Client, []redis.Cmder) []redis.Cmder) {
	var all sync.WaitGroup
	for node, cmds := range nodes {
		all.Go(func() { w.on(ctx, node, cmds, write(node, cmds)) })
	}
	all.Wait()
}

// write returns a command that writes even when memory is full.
func (w *Wait) write(ctx context.Context, key string) []redis.Cmder {
	return []redis.Cmder{redis.NewCmd(ctx, "eval", writes, 1, key)}
}

const writes = "#!lua flags=allow-oom\nreturn redis.call('SET', KEYS[1], '', 'PX', 60000)"

// at returns a key in one of the slots that the client knows to be on a node.
func (w *Wait) at(ctx context.Context, cluster *redis.ClusterClient, node *redis.Client) string {
	var key string
	for i, first := uint32(0), w.tag.Load(); i < Slots; i++ {
		key = w.Key + ":{" + strconv.Itoa(int(first+i)) + "}"
		if master, err := cluster.MasterForKey(ctx, key); err != nil || master == node {
			break
		}
	}
	return key
}

// where writes to the slot of the first of the redirected commands: the client does not know yet
// which other slots that node has.
func (w *Wait) where(ctx context.Context, cmds []redis.Cmder) []redis.Cmder {
	var asking []redis.Cmder
	if cmds[0].Name() == "asking" {
		asking, cmds = []redis.Cmder{redis.NewStatusCmd(ctx, "asking")}, cmds[1:]
	}
	tag := slotTags()[Slot(keyOf(cmds[0]))]
	return append(asking, w.write(ctx, w.Key+":{"+tag+"}")...)
}

// follow groups the redirected commands by the node to which they were redirected. For a slot that
// moves, it puts ASKING just before each command. A redirected command was not executed.
func follow(ctx context.Context, cluster *redis.ClusterClient,
	cmds []redis.Cmder) map[*redis.Client][]redis.Cmder {
	to := make(map[string][]redis.Cmder)
	for _, cmd := range cmds {
		if !redirected(cmd.Err()) {
			continue
		}
		words := strings.Fields(cmd.Err().Error()) // MOVED or ASK, slot, address
		addr := words[len(words)-1]
		if words[0] == "ASK" {
			to[addr] = append(to[addr], redis.NewStatusCmd(ctx, "asking"))
		}
		to[addr] = append(to[addr], cmd)
	}
	if len(to) == 0 {
		return nil
	}
	var mu sync.Mutex
	nodes := make(map[*redis.Client][]redis.Cmder)
	_ = cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if cmds, ok := to[node.Options().Addr]; ok {
			nodes[node] = cmds
		}
		return nil
	})
	if len(nodes) == 0 { // redirected to a master that the client does not know yet
		cluster.ReloadState(ctx)
	}
	return nodes
}

// on sends commands to one server, then a write and the wait, in the same pipeline. WAIT answers
// for all writes of its own connection and for all earlier writes of the server. So on also waits
// for a command that is sent again and finds its record without writing.
func (w *Wait) on(ctx context.Context, server redis.UniversalClient, cmds, write []redis.Cmder) {
	count := w.command(ctx)
	pipe := server.Pipeline()
	// on a Pipeline this only queues
	_ = pipe.BatchProcess(ctx, slices.Concat(cmds, write, []redis.Cmder{count})...)
	_, _ = pipe.Exec(ctx)
	err := w.check(count)
	if refused := write[len(write)-1].Err(); refused != nil {
		w.tag.Add(1) // perhaps that slot moves, and this write is never redirected
		err = fmt.Errorf("%w: %s", ErrShort, refused.Error())
	}
	if err != nil {
		for _, cmd := range cmds {
			unlearn(cmd, err)
		}
	}
}

func (w *Wait) command(ctx context.Context) *redis.Cmd {
	ms := max(w.Timeout.Milliseconds(), 1)
	if w.Disk {
		return redis.NewCmd(ctx, "waitaof", 1, w.Replicas, ms)
	}
	return redis.NewCmd(ctx, "wait", w.Replicas, ms)
}

// check returns nil when enough replicas have answered.
func (w *Wait) check(count *redis.Cmd) error {
	if err := count.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrShort, err)
	}
	local, replicas := int64(1), int64(0)
	switch v := count.Val().(type) {
	case int64:
		replicas = v
	case []any:
		if len(v) == 2 {
			local, _ = v[0].(int64)
			replicas, _ = v[1].(int64)
		}
	}
	if local < 1 || replicas < int64(w.Replicas) {
		disk := ""
		if w.Disk {
			disk = fmt.Sprintf(", own disk %t", local > 0)
		}
		return fmt.Errorf("%w: %d of %d within %v%s", ErrShort, replicas, w.Replicas,
			w.Timeout, disk)
	}
	return nil
}

// unlearn replaces the answer of a command with err.
func unlearn(cmd redis.Cmder, err error) {
	if cmd.Err() != nil && !errors.Is(cmd.Err(), redis.Nil) {
		return // its error says that it was not executed
	}
	switch c := cmd.(type) {
	case *redis.StringCmd:
		c.SetVal("")
	case *redis.Cmd:
		c.SetVal(nil)
	case *redis.IntCmd:
		c.SetVal(0)
	case *redis.SliceCmd:
		c.SetVal(nil)
	}
	cmd.SetErr(err)
}

// keyOf returns the first key of a command that this package or its callers make.
func keyOf(cmd redis.Cmder) string {
	args := cmd.Args()
	at := 1
	if name := cmd.Name(); name == "eval" || name == "evalsha" {
		at = 3
	}
	if at < len(args) {
		switch key := args[at].(type) {
		case string:
			return key
		case *string:
			return *key
		}
	}
	return ""
}

func redirected(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK"))
}
