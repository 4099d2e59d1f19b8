// Package redisbench is what the Redis benchmarks measure: each file is a family of
// workloads, and the goals stand next to the pairs that have to reach them.
package redisbench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// Suite is the Redis path.
var Suite = harness.Suite{
	Area: "redis", About: "the Redis path next to its limits and to what else people use",
	Full:  harness.Scale{Rounds: 7, Keys: 50_000, Budget: 150 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Keys: 50_000, Budget: 12 * time.Millisecond},
	Open: func(ctx context.Context, o harness.Options, b *harness.Bench) {
		e := newEnv(server.Open(ctx, b, o.Redis, o.Port), o)
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
	},
}

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

type keeper struct {
	name string
	goal harness.Goal
	fill func(ctx context.Context, s *harness.Setup, n int)
}

// memory: what a finished key costs the server.
func (e *env) memory() []harness.Group {
	return []harness.Group{{Workload: "memory", X: float64(e.fill),
		Title:  fmt.Sprintf("bytes per remembered key, %s keys", harness.Short(e.fill)),
		Unable: e.needsMemory(), Open: e.measureMemory}}
}

func (e *env) keepers() []keeper {
	keepers := []keeper{
		{name: "string, 46-byte key, 28-byte token",
			fill: e.fillRaw("dd:orders:%036d", "0123456789abcdef0123456789ab")},
		{name: "string, 46-byte key, value 1", fill: e.fillRaw("dd:orders:%036d", "1")},
		{name: "string, 18-byte digest key, value 1", fill: e.fillRaw("d:%016d", "1")},
	}
	for _, l := range work.Layouts {
		goal := harness.When(l.Kind == small().Kind, harness.ValueAtMost(10, 9, "B"))
		keepers = append(keepers, keeper{name: l.Name, goal: goal,
			fill: func(ctx context.Context, s *harness.Setup, n int) {
				l.Expecting(n).Open(ctx, s, e.redis.Addr, 0, work.Long).Fill(ctx, n)
			}})
	}
	return keepers
}

func (e *env) measureMemory(ctx context.Context, s *harness.Setup) {
	const name, unit = "bytes per remembered key", "B/key"
	for _, k := range e.keepers() {
		e.redis.Empty(ctx)
		before, filling := e.redis.Memory(ctx), &harness.Setup{}
		err := must.Try(func() { k.fill(ctx, filling, e.fill) })
		must.Do(errors.Join(err, filling.Close())) // connections have buffers
		perKey := float64(e.redis.Memory(ctx)-before) / float64(e.fill)
		if len(s.Rows) == 0 {
			s.Row(harness.Figure(name, k.name, perKey, unit, k.goal))
			continue
		}
		s.Row(harness.Compared(name, k.name, perKey, unit, s.Rows[0].Side, s.Rows[0].Value, k.goal))
	}
	e.redis.Empty(ctx)
}

// fillRaw remembers keys of a form that has their number.
func (e *env) fillRaw(form, value string) func(context.Context, *harness.Setup, int) {
	return func(ctx context.Context, s *harness.Setup, n int) {
		raw := work.DialRaw(ctx, s, e.redis.Addr, 1)
		keys := make([]string, 0, work.Typical)
		for i := range n {
			keys = append(keys, fmt.Sprintf(form, i))
			if len(keys) == work.Typical || i == n-1 {
				raw[0].ClaimNew(ctx, keys, value, 6*peer.Window)
				keys = keys[:0]
			}
		}
	}
}

// compactCPU: what a cycle costs the server whose memory Compact saves. Half of the buckets'
// room is taken before, so that they are on average what they are over a window.
func (e *env) compactCPU() []harness.Group {
	title := fmt.Sprintf("server CPU per cycle, compact, %s keys remembered",
		harness.Short(e.fill/5))
	return []harness.Group{{Workload: "compact-cpu", X: float64(e.fill / 5), Title: title,
		Unable: e.needsMemory(), Open: e.openCompactCPU}}
}

func (e *env) openCompactCPU(ctx context.Context, s *harness.Setup) {
	b, filled := inBatches(s, workers, work.Typical), e.fill/5
	// A timing adds a tenth of what is there: with its warm-up, a run fills the rest.
	s.MaxKeys = max(filled/10, s.Multiple)
	for _, l := range []work.Layout{plain(), small()} {
		d := l.Expecting(2*filled).Open(ctx, s, e.redis.Addr, 0, work.Long)
		d.Fill(ctx, filled)
		b.side(l.Name, d.Batch(work.New, nil))
	}
	s.Pair(harness.Pair{Name: "server CPU per cycle, compact against the plain string layout",
		Side: small().Name, Against: plain().Name,
		Metric: harness.ServerMicros, Goal: harness.AtMost(1, 0.75)},
		harness.Pair{Name: "throughput, compact against the plain string layout",
			Side: small().Name, Against: plain().Name})
}

// few is what a small deployment remembers.
const few = 10_000

// remembered: what a duplicate costs when much is remembered. The few and the many live in
// two databases of one server, so that both are asked in turn.
func (e *env) remembered() (groups []harness.Group) {
	for _, l := range work.Without(mixedIsCompact...) {
		for _, grown := range e.grown {
			title := fmt.Sprintf("growth %s -> %s keys, duplicate check, %s", harness.Short(few),
				harness.Short(grown), l.Name)
			g := harness.Group{Workload: "remembered", X: float64(grown), Title: title,
				Open: func(ctx context.Context, s *harness.Setup) {
					e.openRemembered(ctx, s, l, grown)
				}}
			if grown > 1_000_000 {
				g.Unable = e.needsMemory()
			}
			if !e.redis.Own {
				g.Unable = "fills a server that others use for an hour"
			}
			groups = append(groups, g)
		}
	}
	return groups
}

func (e *env) openRemembered(ctx context.Context, s *harness.Setup, l work.Layout, grown int) {
	s.Multiple = workers * work.Typical
	side := func(size int) string {
		return fmt.Sprintf("%s, %s remembered", l.Name, harness.Short(size))
	}
	for db, size := range []int{few, grown} {
		d := l.Expecting(size).Open(ctx, s, e.redis.Addr, db, work.Long)
		d.Fill(ctx, size)
		pick := func(_ context.Context, t *harness.Timing) {
			for i := range t.Keys {
				t.Keys[i] = work.Numbered(rand.IntN(size))
			}
		}
		s.Prepared(side(size), pick,
			work.InBatches(workers, work.Typical, d.Batch(work.Known, nil)))
	}
	s.Pair(harness.Pair{Side: side(grown), Against: side(few), Metric: harness.Micros,
		Goal: harness.AtMost(1.6, 1.3)})
}

// Sides of a stream.
const (
	cacheOff = "onceward, no local cache"
	cacheOn  = "onceward, local cache"
)

type mode struct {
	workload, text string
	callers        int // 0: in batches
	goals          map[int]harness.Goal
}

// streams: a share of the keys are duplicates of recent ones; with and without the cache of
// finished keys in this process.
func (e *env) streams() (groups []harness.Group) {
	for _, m := range []mode{
		{workload: "stream-1", text: "one caller", callers: 1, goals: map[int]harness.Goal{
			0: harness.AtLeast(0.95, 1), 50: harness.AtLeast(1.2, 1.5), 90: harness.AtLeast(5, 6),
		}},
		{workload: "stream-64", text: "64 callers", callers: 64},
		{workload: "stream-batch", text: fmt.Sprintf("batches of %d", work.Typical)},
	} {
		for _, share := range []int{0, 10, 50, 90} {
			title := fmt.Sprintf("stream with %d %% recent duplicates, %s", share, m.text)
			groups = append(groups, harness.Group{
				Workload: m.workload, X: float64(share), Title: title, Detail: share == 10 ||
					(m.callers != 1 && share != 50),
				Open: func(ctx context.Context, s *harness.Setup) {
					s.Pair(harness.Pair{Name: title + ", local cache", Side: cacheOn,
						Against: cacheOff, Text: "the same without", Goal: m.goals[share]})
					e.openStream(ctx, s, m, share)
				},
			})
		}
	}
	return groups
}

func (e *env) openStream(ctx context.Context, s *harness.Setup, m mode, share int) {
	gap := 2 * m.callers
	if s.Multiple = m.callers; m.callers == 0 {
		gap, s.Multiple = workers*work.Typical, workers*work.Typical
	}
	s.MinKeys = 10 * gap // the first gap has no duplicates
	s.Keys = func(n int) []string { return harness.Recent(n, share, gap) }
	for _, name := range []string{cacheOff, cacheOn} {
		d := plain().Open(ctx, s, e.redis.Addr, 0, func(c *dedup.Config) {
			if name == cacheOn {
				work.Cached(c)
			}
		})
		if m.callers == 0 {
			inBatches(s, workers, work.Typical).side(name, d.Batch(work.Either, nil))
		} else {
			s.Side(name, work.Callers(m.callers, d.One(work.Either)))
		}
	}
}

// Sides that answer from memory.
const (
	exactSide = "exact map behind a mutex"
	claimSide = "onceward Claim, local cache"
	seenSide  = "onceward Seen, local cache"
)

// local: duplicates that are answered in this process.
func (e *env) local() []harness.Group {
	return []harness.Group{{Workload: "in-process", X: 1, Title: "duplicates answered in process",
		Open: e.openLocal}}
}

func (e *env) openLocal(ctx context.Context, s *harness.Setup) {
	keys := harness.FreshKeys(1 << 15)
	d := plain().Open(ctx, s, e.redis.Addr, 0, work.Cached)
	work.InBatches(workers, work.Typical, d.Batch(work.New, nil))(ctx, &harness.Timing{Keys: keys})
	exact, claim := peer.NewMap(keys), d.One(work.Known)
	known := func(seen bool, key string) {
		if !seen { // in a loop that must not allocate
			must.Do(fmt.Errorf("%s: is not remembered", key))
		}
	}
	s.Sides = []harness.Side{
		e.benchmark(exactSide, keys, func(key string) { known(exact.Seen(key), key) }),
		e.benchmark(claimSide, keys, func(key string) { claim(ctx, key) }),
		e.benchmark(seenSide, keys, func(key string) { known(must.Get(d.Seen(ctx, key)), key) }),
	}
	s.Pair(localPairs()...)
}

func localPairs() (pairs []harness.Pair) {
	for _, side := range []string{seenSide, claimSide} {
		goals := side == seenSide // Claim is for information: it also makes a Claim
		call, _, _ := strings.Cut(strings.TrimPrefix(side, "onceward "), ",")
		name := "duplicates answered in process, " + call
		pairs = append(pairs,
			harness.Pair{Name: name, Side: side, Against: exactSide, Metric: harness.Nanos,
				Goal: harness.When(goals, harness.ValueAtMost(150, 60, "ns"))},
			harness.Pair{Name: name + ", allocations", Side: side, Against: exactSide,
				Metric: harness.Allocs,
				Goal:   harness.When(goals, harness.ValueAtMost(0, 0, "allocations"))})
	}
	return pairs
}

// initTesting lets testing.Benchmark run outside a test binary.
var initTesting = sync.OnceFunc(testing.Init)

// benchmark measures one with the testing package, over keys in turn.
func (e *env) benchmark(name string, keys []string, one func(key string)) harness.Side {
	return harness.Side{Name: name, External: func(context.Context) harness.Sample {
		initTesting()
		// A timing of less than this is mostly the first hit, which may look into the store.
		budget := max(e.budget, 100*time.Millisecond)
		must.Do(flag.Set("test.benchtime", budget.String()))
		var failure error
		r := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			failure = must.Try(func() {
				for b.Loop() {
					one(keys[i%len(keys)])
					i++
				}
			})
		})
		must.Do(failure)
		must.True(r.N > 0 && r.T > 0, "nothing was measured")
		return harness.Sample{Rate: float64(r.N) / r.T.Seconds(),
			Usage: harness.Usage{Allocs: float64(r.MemAllocs) / float64(r.N)}}
	}}
}
