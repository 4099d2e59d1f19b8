package redisscript

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Exec sends what was queued in a pipeline of client, as [redis.Pipeliner.Exec] does, which
// on a Cluster may otherwise send one command to two nodes at the same time, and let both
// replies write it: a command that was answered with MOVED or ASK is put aside for where it
// goes, and put aside once more with its whole batch when a later reply cannot be read, or
// the first one is CLUSTERDOWN or TRYAGAIN (pipelineReadCmds of go-redis 9.23.0). So the
// client of a Cluster is told to try no batch a second time. It goes on following
// redirections, and asks again where nothing was sent; the rest is the caller's.
func Exec(ctx context.Context, client redis.UniversalClient,
	pipe redis.Pipeliner) ([]redis.Cmder, error) {
	if _, ok := client.(*redis.ClusterClient); ok {
		cmds := pipe.Cmds()
		sent := make([]once, len(cmds))
		for i, cmd := range cmds {
			sent[i].Cmder = cmd
			cmds[i] = &sent[i]
		}
	}
	return pipe.Exec(ctx)
}

// Once is a command that the client sends no second time, and no pipeline that it is in.
func Once(cmd redis.Cmder) redis.Cmder { return &once{cmd} }

// once is a command that is not sent again after it may have been executed.
type once struct{ redis.Cmder }

func (*once) NoRetry() bool { return true }
