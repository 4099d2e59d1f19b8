package redisadapter

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

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

// checkFill reports once when the buckets of the layout Compact have more members
// than they are made for. The current generation and the one before are sampled. A
// server that does not answer is reported by other looks.
func (w *watcher) checkFill(ctx context.Context) {
	b := w.s.buckets
	if b == nil || !w.sampled.IsZero() && time.Since(w.sampled) < fillEvery {
		return
	}
	at := w.s.clock.Now(ctx)
	if !at.Known() {
		return
	}
	w.sampled = time.Now()
	mean, sampled := w.fill(ctx, b, b.generation(at))
	if previous, n := w.fill(ctx, b, b.generation(at)-1); previous > mean {
		mean, sampled = previous, n
	}
	full := mean > fillLimit
	if full && !w.full {
		w.s.guard.Report(wire.Advices.Finding(wire.CodeFullBuckets, "",
			"%d sampled buckets under %q hold %d members or more on average; they are made for %d",
			sampled, w.s.opts.Prefix, mean, keysPerBucket))
	}
	w.full = full
}

// fill returns the mean number of members of sampled buckets of a generation, of which those
// above fillCount count as that.
func (w *watcher) fill(ctx context.Context, b *buckets, generation int64) (mean, sampled int) {
	n := min(fillSample, b.shards)
	first := rand.Uint64N(b.shards)
	cmds := make([]*redis.StringSliceCmd, 0, n)
	_, err := w.s.guard.Client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
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
