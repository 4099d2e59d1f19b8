package bench

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// counter counts what a client sends: a command alone and a pipeline are one round trip each. What
// the client sends again by itself is counted once, and what it says on a new connection is not.
type counter struct{ commands, trips atomic.Int64 }

// watch has the commands of a client counted, on a Cluster those of its nodes' clients, each of
// which gets its own part of a pipeline.
func (c *counter) watch(client redis.UniversalClient) {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(c) })
		return
	}
	client.AddHook(c)
}

// DialHook implements [redis.Hook].
func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds...)
		return next(ctx, cmds)
	}
}

// greetings are the commands with which go-redis begins a connection.
var greetings = []string{"auth", "client", "hello", "readonly", "select"}

func (c *counter) count(cmds ...redis.Cmder) {
	n := 0
	for _, cmd := range cmds {
		if !slices.Contains(greetings, cmd.Name()) {
			n++
		}
	}
	if n > 0 {
		c.commands.Add(int64(n))
		c.trips.Add(1)
	}
}
