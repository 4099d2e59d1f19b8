package redisadapter

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// defaultWaitTimeout is the default of Durability.Timeout.
const defaultWaitTimeout = 500 * time.Millisecond

// ErrNotDurable is in the error of a write that was executed, but had not reached as many
// replicas, or the disk, as [Options.Durability] asks for. It may be lost with its server, so
// the store does not rely on it: a claim is not granted, and is given back; an end is not
// confirmed, and is sent again.
var ErrNotDurable = redisscript.ErrShort

// Durability says how safe a write must be before it counts. Replication is
// asynchronous: without waiting, a failover forgets what was acknowledged just before, and
// a server that is frozen for less than a lease while its replica is promoted leaves two
// owners of one key.
//
// Waiting is one WAIT, or WAITAOF, at the end of each pipeline, on the connection that
// has written: on a Cluster one for each master. It costs a round trip between the server
// and its replicas per call, which large batches share. It makes losing a write much
// less likely, and not impossible: Redis's documentation says that WAIT does not make it a
// strongly consistent store.
//
// Completions inside a transaction of the caller's are not waited for. An ACL user needs
// +wait, or +waitaof, too.
type Durability struct {
	// Replicas that must have got a write: 0 to 16. Default 0: none.
	Replicas int
	// Disk says that the server itself, and so many Replicas, must have fsynced a write to
	// their append-only files. It needs Redis 7.2 and appendonly yes. Default false.
	Disk bool
	// Timeout bounds the waiting. It must be shorter than the client's ReadTimeout, and than
	// dedup.Config.StoreTimeout, or a slow replica is taken for a dead server. Default
	// 500 ms.
	Timeout time.Duration
}

const maxReplicas = 16

func (d *Durability) waits() bool { return d.Replicas > 0 || d.Disk }

// complete sets the default, or names the bad field.
func (d *Durability) complete() error {
	switch {
	case d.Replicas < 0 || d.Replicas > maxReplicas:
		return input("Options.Durability.Replicas",
			fmt.Sprintf("is %d; 0 to %d are allowed", d.Replicas, maxReplicas))
	case d.Timeout < 0:
		return input("Options.Durability.Timeout", "is negative")
	case d.Timeout > 0 && !d.waits():
		return input("Options.Durability.Timeout", "is set, and there is nothing to wait for")
	case d.Timeout == 0:
		d.Timeout = defaultWaitTimeout
	}
	return nil
}

// runner makes the Runner that the options ask for.
func (o *Options) runner(client redis.UniversalClient) *redisscript.Runner {
	if !o.Durability.waits() {
		return redisscript.NewRunner(client)
	}
	return redisscript.NewWaitingRunner(client, redisscript.Wait{
		Replicas: o.Durability.Replicas, Disk: o.Durability.Disk, Timeout: o.Durability.Timeout,
	})
}

// tryDurability writes something and waits for it, on every master: a server that does not
// know the command, or has no such replicas, shows itself now.
func (s *Store) tryDurability(ctx context.Context, client redis.UniversalClient) error {
	if !s.opts.Durability.waits() {
		return nil
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return s.tryOn(ctx, node)
		})
	}
	return s.tryOn(ctx, client)
}

func (s *Store) tryOn(ctx context.Context, server redis.UniversalClient) error {
	d := s.opts.Durability
	args := []any{"wait", d.Replicas, d.Timeout.Milliseconds()}
	if d.Disk {
		args = []any{"waitaof", 1, d.Replicas, d.Timeout.Milliseconds()}
	}
	if err := server.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("redisadapter: Options.Durability: %s: %w", args[0], err)
	}
	info, err := server.Info(ctx, "replication").Result()
	if err != nil {
		return fmt.Errorf("redisadapter: Options.Durability: INFO: %w", err)
	}
	var replicas int
	_, _ = fmt.Sscan(wire.ParseInfo(info)["connected_slaves"], &replicas)
	if replicas < d.Replicas {
		return fmt.Errorf("redisadapter: Options.Durability: %w: the server has %d replicas, %d are asked for", ErrNotDurable, replicas, d.Replicas)
	}
	return nil
}
