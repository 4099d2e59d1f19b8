package redisscript

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Exec sends the queued commands of a pipeline of client, as [redis.Pipeliner.Exec] does.
// On a Cluster the latter may send one command to two nodes at the same time and let both
// replies write it (pipelineReadCmds of go-redis 9.23.0). It queues a command that was
// answered with MOVED or ASK for its new node. It queues it once more, with its whole
// batch, if a later reply cannot be read, or if the first one is CLUSTERDOWN or TRYAGAIN.
// So Exec tells the client of a Cluster to try no batch a second time. That client still
// follows redirections, and tries again if it has sent nothing; other retries are up to
// the caller.
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

// Once returns cmd as a command that the client does not send a second time, nor any
// pipeline with it.
func Once(cmd redis.Cmder) redis.Cmder { return &once{cmd} }

// once is a command that is not sent again after it may have been executed.
type once struct{ redis.Cmder }

func (*once) NoRetry() bool { return true }
