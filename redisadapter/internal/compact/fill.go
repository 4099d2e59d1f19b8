package compact

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/redisadapter/internal/engine"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

const (
	// fillLimit is how many members a bucket may have on average: with this mean one bucket in
	// 500 has more than the 512 that Redis keeps compactly, and there is time left to react.
	fillLimit = 450
	// fillCount is what is read of a bucket: enough to see one that is too large.
	fillCount = 513
	// fillSample is how many buckets of a generation a watcher looks at, and fillEvery how often.
	fillSample = 16
	fillEvery  = time.Minute
)

// Fill remembers what was last seen of how full the buckets of a layout are. One goroutine uses it.
type Fill struct {
	Sampled time.Time // when buckets were last looked at
	full    bool      // they were too full then
}

// Look reports once when buckets have more members than they are made for. The current generation
// and the one before are sampled, once a minute. It does not report a server that does not answer,
// because other checks do.
func (f *Fill) Look(ctx context.Context, e *engine.Engine, b *Layout) {
	if !f.Sampled.IsZero() && time.Since(f.Sampled) < fillEvery {
		return
	}
	at := e.Clock.Now(ctx)
	if !at.Known() {
		return
	}
	f.Sampled = time.Now()
	mean, sampled := b.fill(ctx, e.Guard.Client, b.generation(at))
	if previous, n := b.fill(ctx, e.Guard.Client, b.generation(at)-1); previous > mean {
		mean, sampled = previous, n
	}
	full := mean > fillLimit
	if full && !f.full {
		e.Guard.Report(wire.Advices.Finding(wire.CodeFullBuckets, "",
			"%d sampled buckets under %q hold %d members or more on average; they are made for %d",
			sampled, b.prefix, mean, keysPerBucket))
	}
	f.full = full
}

// fill returns the mean number of members of sampled buckets of a generation, where a bucket with
// more than fillCount counts as fillCount.
func (b *Layout) fill(ctx context.Context, client redis.UniversalClient,
	generation int64) (mean, sampled int) {
	n := min(fillSample, b.shards)
	first := rand.Uint64N(b.shards)
	cmds := make([]*redis.StringSliceCmd, 0, n)
	_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := range n {
			p := bucketPosition{shard: (first + i*(b.shards/n)) % b.shards}
			cmds = append(cmds, pipe.SRandMemberN(ctx, string(b.appendBucket(nil, p, generation)),
				fillCount))
		}
		return nil
	})
	if err != nil {
		return 0, 0
	}
	total := 0
	for _, cmd := range cmds {
		total += len(cmd.Val())
	}
	return total / len(cmds), len(cmds)
}
