// Package redisbench is what the Redis benchmarks measure: each file is a family of
// workloads, and the goals stand next to the pairs that have to reach them.
package redisbench

import (
	"context"
	"slices"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/redisadapter"
)

// Suite is the Redis path.
var Suite = harness.Suite{
	Area: "redis", About: "the Redis path next to its limits and to what else people use",
	Full:  harness.Scale{Rounds: 7, Keys: 50_000, Budget: 150 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Keys: 50_000, Budget: 12 * time.Millisecond},
	Open: func(ctx context.Context, o harness.Options, b *harness.Bench) {
		newEnv(server.Open(ctx, b, o.Redis, o.Port), o).prepare(b)
	},
}

// env is where the workloads run.
type env struct {
	redis  *server.Redis
	budget time.Duration // of one timing
	fill   int           // keys that are remembered when memory is measured
	grown  []int         // keys that the larger of two databases remembers
}

// newEnv scales the workloads that fill a server.
func newEnv(redis *server.Redis, o harness.Options) *env {
	e := &env{redis: redis, budget: o.Budget, fill: 1_000_000, grown: []int{1_000_000}}
	switch {
	case o.Quick:
		e.fill, e.grown = 50_000, []int{50_000}
	case o.Long:
		e.grown = append(e.grown, 10_000_000)
	}
	return e
}

func (e *env) prepare(b *harness.Bench) {
	b.Meter.ServerCPU = e.redis.CPU()
	b.Modules = map[string]string{
		"github.com/redis/go-redis/v9": "go-redis", "github.com/redis/rueidis": "rueidis",
		"github.com/bsm/redislock": "redislock", "github.com/go-redsync/redsync/v4": "redsync",
		"github.com/ThreeDotsLabs/watermill":  "watermill",
		"github.com/gofiber/fiber/v2":         "fiber",
		"github.com/gofiber/storage/redis/v3": "fiber-storage-redis",
		"github.com/alicebob/miniredis/v2":    "miniredis",
	}
	if e.redis.Own {
		// Keys of the groups before it would lie in memory for the rest of their window.
		b.Between = e.redis.Empty
	}
	if peer.RedisBenchmarkPath() == "" || e.redis.Embedded {
		b.LeaveOut("redis-benchmark: it is not installed, or the server is embedded")
	}
	b.Groups = e.groups()
}

// groups are all workloads, in the order in which they run.
func (e *env) groups() []harness.Group {
	return slices.Concat(e.batches(), e.duplicates(), e.callers(), e.busy(), e.delayed(),
		e.streams(), e.local(), e.peers(), e.results(), e.memory(), e.compactCPU(), e.remembered())
}

// needsMemory says why a workload that looks at the server's memory cannot run.
func (e *env) needsMemory() string {
	if e.redis.Embedded || !e.redis.Own {
		return "needs a Redis process of its own"
	}
	return ""
}

// mixedIsCompact are the layouts of families in which Mixed does what Compact does.
var mixedIsCompact = []redisadapter.Layout{redisadapter.Mixed}
