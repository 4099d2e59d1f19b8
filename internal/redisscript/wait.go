package redisscript

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Wait makes a Runner wait, at the end of every pipeline that may write, until what was
// written has reached so many replicas, or the disk.
type Wait struct {
	// Replicas that must have got it.
	Replicas int
	// Disk says that the server itself, and so many replicas, must have fsynced it to
	// their append-only files (WAITAOF, Redis 7.2).
	Disk bool
	// Timeout of the waiting; then what was written counts as not learnt.
	Timeout time.Duration
}

// ErrShort is in the Err of a Reply, and the error of a plain command, when too few
// replicas had got what was written, or it is not known how many: it may be lost with
// its server.
var ErrShort = errors.New("not on enough replicas")

// NewWaitingRunner returns a Runner that waits.
func NewWaitingRunner(client redis.UniversalClient, w Wait) *Runner {
	return &Runner{client: client, wait: &w}
}

// durably sends commands and waits for them, on a Cluster on every node. A node's own
// client does not follow redirections, so it is done here, once; after one, the client's
// map of the Cluster is read again. What is redirected a second time counts as not learnt.
func (r *Runner) durably(ctx context.Context, cmds []redis.Cmder) {
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		r.wait.on(ctx, r.client, cmds)
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
	r.wait.onEach(ctx, nodes)
	if again := follow(ctx, cluster, cmds); len(again) > 0 {
		r.wait.onEach(ctx, again)
		cluster.ReloadState(ctx)
	}
}

// onEach sends commands to several nodes at the same time.
func (w *Wait) onEach(ctx context.Context, nodes map[*redis.Client][]redis.Cmder) {
	var all sync.WaitGroup
	for node, cmds := range nodes {
		all.Go(func() { w.on(ctx, node, cmds) })
	}
	all.Wait()
}

// follow groups the commands that were redirected by where to. A slot that is on its way
// is asked for with ASKING, just before each command; what was redirected was not executed.
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
	if len(nodes) == 0 { // to a master that is not known yet
		cluster.ReloadState(ctx)
	}
	return nodes
}

// on sends commands to one server, and the waiting in the same pipeline: WAIT answers for
// everything that the server had written when it executed the command before it on this
// connection. So what is sent again, and found on record without writing, is waited for
// too; on a connection of its own, WAIT would answer for nothing.
func (w *Wait) on(ctx context.Context, server redis.UniversalClient, cmds []redis.Cmder) {
	count := w.command(ctx)
	pipe := server.Pipeline()
	// of a Pipeline, it only queues
	_ = pipe.BatchProcess(ctx, append(cmds[:len(cmds):len(cmds)], count)...)
	_, _ = pipe.Exec(ctx)
	if err := w.verdict(count); err != nil {
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

// verdict is nil when enough have answered.
func (w *Wait) verdict(count *redis.Cmd) error {
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

// unlearn takes back what a command has answered.
func unlearn(cmd redis.Cmder, err error) {
	if cmd.Err() != nil && !errors.Is(cmd.Err(), redis.Nil) {
		return // not executed: that says more
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
