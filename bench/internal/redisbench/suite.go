// Package redisbench holds the Redis benchmarks: cycles of batches and of callers in cycles.go, the
// others here. Each goal stands next to the pair that has to reach it.
package redisbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// Suite measures the Redis path.
var Suite = harness.Suite{
	Area: "redis", About: "the Redis path next to its limits and to what else people use",
	Full:  harness.Scale{Rounds: 7, Keys: 50_000, Budget: 150 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Keys: 50_000, Budget: 12 * time.Millisecond},
	Open: func(ctx context.Context, o harness.Options, b *harness.Bench) {
		e := newEnv(server.Open(ctx, b, o.Redis), o)
		b.Meter.ServerCPU = e.redis.CPU()
		b.Modules = []string{"go-redis", "rueidis", "redislock", "redsync",
			"watermill", "fiber", "fiber-storage-redis", "miniredis"}
		// Otherwise the keys of earlier groups would stay in memory for the rest of their window.
		b.Between = e.redis.Clear
		if !e.canGenerateLoad() {
			b.LeaveOut("redis-benchmark: it is not installed, or the server is embedded")
		}
		b.Groups = e.groups()
	},
}

type env struct {
	redis  *server.Redis
	budget time.Duration // of one timing
	fill   int           // keys that are remembered while memory is measured
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

func (e *env) groups() (all harness.Groups) {
	for _, add := range []func(*harness.Groups){
		e.batches, e.duplicates, e.callers, e.busy, e.delayed, e.streams, e.local, e.peers,
		e.results, e.memory, e.unplanned, e.compactCPU, e.remembered,
	} {
		add(&all)
	}
	return all
}

// needsMemory returns the reason why a workload that reads the server's memory cannot run.
func (e *env) needsMemory() string {
	if e.redis.Embedded || !e.redis.Own {
		return "needs a Redis process of its own"
	}
	return ""
}

type filling func(ctx context.Context, s *harness.Setup, n int)

type keeper struct {
	name string
	goal harness.Goal
	fill filling
}

func (e *env) keepers() []keeper {
	keepers := []keeper{
		{name: "string, 46-byte key, 28-byte token",
			fill: e.fillRaw("dd:orders:%036d", "0123456789abcdef0123456789ab")},
		{name: "string, 46-byte key, value 1", fill: e.fillRaw("dd:orders:%036d", "1")},
		{name: "string, 18-byte digest key, value 1", fill: e.fillRaw("d:%016d", "1")},
	}
	for _, l := range work.Layouts {
		goal := harness.When(l == work.Compact, "<= 10 B (stretch 9 B)")
		keepers = append(keepers, keeper{l.Name, goal,
			func(ctx context.Context, s *harness.Setup, n int) {
				l.Expecting(n).Open(ctx, s, e.redis.Addr, 0, work.Window(time.Hour)).Fill(ctx, n)
			}})
	}
	return keepers
}

// fillRaw remembers keys that form makes from their number.
func (e *env) fillRaw(form, value string) filling {
	return func(ctx context.Context, s *harness.Setup, n int) {
		raw := work.DialRaw(ctx, s, e.redis.Addr, 1)
		work.Numbers(n, work.Typical, form, func(keys []string) {
			raw[0].ClaimNew(ctx, keys, value, 6*peer.Window)
		})
	}
}

func (e *env) memory(all *harness.Groups) {
	const name = "bytes per remembered key"
	title := fmt.Sprintf("%s, %s keys", name, harness.Short(e.fill))
	all.Add("memory", e.fill, title, func(ctx context.Context, s *harness.Setup) {
		for _, k := range e.keepers() {
			row := s.Figure(name, k.name, e.perKey(ctx, e.fill, k.fill), "B/key").Wants(k.goal)
			if first := s.Rows[0]; len(s.Rows) > 1 {
				row.Next(first.Side, first.Value)
			}
		}
		e.redis.Empty(ctx)
	}).Unable = e.needsMemory()
}

// perKey empties the server, fills it, and returns the bytes that it has allocated for each of n
// keys.
func (e *env) perKey(ctx context.Context, n int, fill filling) float64 {
	e.redis.Empty(ctx)
	before, s := e.redis.Memory(ctx), &harness.Setup{}
	err := must.Try(func() { fill(ctx, s, n) })
	must.Do(errors.Join(err, s.Close())) // an open connection has buffers
	return float64(e.redis.Memory(ctx)-before) / float64(n)
}

// unplanned measures the bytes of a key if more or fewer keys come than Compact is planned for.
func (e *env) unplanned(all *harness.Groups) {
	planned := e.fill / 2
	title := "bytes per remembered key, planned for " + harness.Short(planned) + " keys"
	l := work.Compact.Expecting(planned)
	l.Prefix = redisadapter.DefaultPrefix // the server holds nothing else
	all.Add("memory-unplanned", planned, title, func(ctx context.Context, s *harness.Setup) {
		fill := func(ctx context.Context, s *harness.Setup, n int) {
			l.Open(ctx, s, e.redis.Addr, 0, work.Window(24*time.Hour)).Fill(ctx, n)
		}
		e.perKey(ctx, planned/100, fill) // the server makes a histogram for each new command
		for _, load := range []float64{0.1, 0.5, 1, 1.5, 2} {
			perKey := e.perKey(ctx, int(load*float64(planned)), fill)
			s.Figure(fmt.Sprintf("bytes per remembered key, compact, %g times the plan", load),
				work.Compact.Name, perKey, "B/key").Wants("<= 14 B (stretch 10 B)")
		}
		e.redis.Empty(ctx)
	}).Unable = e.needsMemory()
}

// compactCPU adds what a cycle costs the CPU of a server with the compact layout. Before the
// timings, the buckets are half full, which is their average over a window.
func (e *env) compactCPU(all *harness.Groups) {
	filled, ours, plain := e.fill/5, work.Compact, work.Full
	title := "server CPU per cycle, compact, " + harness.Short(filled) + " keys remembered"
	all.Add("compact-cpu", filled, title, func(ctx context.Context, s *harness.Setup) {
		b := inBatches(s, workers, work.Typical)
		// Each timing adds a tenth of the keys that are there, so the warm-up and the timings fill
		// the other half.
		s.MaxKeys = max(filled/10, s.Multiple)
		for _, l := range []work.Layout{plain, ours} {
			d := l.Expecting(2*filled).Open(ctx, s, e.redis.Addr, 0, work.Window(time.Hour))
			d.Fill(ctx, filled)
			b.side(l.Name, d.Batch(work.New, nil))
		}
		s.Compare(ours.Name, plain.Name).In(harness.ServerMicros).Wants("<= 1.3x (stretch 1x)").
			Called("server CPU per cycle, compact against the plain string layout")
		s.Compare(ours.Name, plain.Name).
			Called("throughput, compact against the plain string layout")
	}).Unable = e.needsMemory()
}

// few is what a small deployment remembers.
const few = 10_000

// remembered adds what a duplicate costs when many keys are remembered. The few keys and the many
// are in two databases of one server, so that both are timed in turn.
func (e *env) remembered(all *harness.Groups) {
	for _, l := range work.Layouts {
		for _, grown := range e.grown {
			title := fmt.Sprintf("growth %s -> %s keys, duplicate check, %s", harness.Short(few),
				harness.Short(grown), l.Name)
			g := all.Add("remembered", grown, title, func(ctx context.Context, s *harness.Setup) {
				e.openRemembered(ctx, s, l, grown)
			})
			switch {
			case !e.redis.Own:
				g.Unable = "fills a server that others use for an hour"
			case grown > 1_000_000:
				g.Unable = e.needsMemory()
			}
		}
	}
}

func (e *env) openRemembered(ctx context.Context, s *harness.Setup, l work.Layout, grown int) {
	s.Multiple = workers * work.Typical
	side := func(size int) string { return l.Name + ", " + harness.Short(size) + " remembered" }
	for db, size := range []int{few, grown} {
		d := l.Expecting(size).Open(ctx, s, e.redis.Addr, db, work.Window(time.Hour))
		d.Fill(ctx, size)
		s.Prepared(side(size), func(_ context.Context, t *harness.Timing) {
			for i := range t.Keys {
				t.Keys[i] = work.Numbered(rand.IntN(size))
			}
		}, work.InBatches(workers, work.Typical, d.Batch(work.Known, nil)))
	}
	s.Compare(side(grown), side(few)).In(harness.Micros).Wants("<= 1.5x (stretch 1.3x)")
}

const (
	cacheOff = "onceward, no local cache"
	cacheOn  = "onceward, local cache"

	exactSide = "exact map behind a mutex"
	claimSide = "onceward Claim, local cache"
	seenSide  = "onceward Seen, local cache"
)

type mode struct {
	workload, text string
	callers        int // 0: in batches
	goals          map[int]harness.Goal
}

// streams adds workloads in which a share of the keys repeat recent ones, with and without the
// cache of finished keys in this process.
func (e *env) streams(all *harness.Groups) {
	for _, m := range []mode{
		{workload: "stream-1", text: "one caller", callers: 1, goals: map[int]harness.Goal{
			0: ">= 0.95x (stretch 1x)", 50: ">= 1.2x (stretch 1.5x)", 90: ">= 5x (stretch 6x)",
		}},
		{workload: "stream-64", text: "64 callers", callers: 64},
		{workload: "stream-batch", text: fmt.Sprintf("batches of %d", work.Typical)},
	} {
		for _, share := range []int{0, 10, 50, 90} {
			title := fmt.Sprintf("stream with %d %% recent duplicates, %s", share, m.text)
			all.Add(m.workload, share, title, func(ctx context.Context, s *harness.Setup) {
				s.Compare(cacheOn, cacheOff).Called(title + ", local cache").
					As("the same without").Wants(m.goals[share])
				e.openStream(ctx, s, m, share)
			}).Detail = share == 10 || m.callers != 1 && share != 50
		}
	}
}

func (e *env) openStream(ctx context.Context, s *harness.Setup, m mode, share int) {
	gap := 2 * m.callers
	if s.Multiple = m.callers; m.callers == 0 {
		gap, s.Multiple = workers*work.Typical, workers*work.Typical
	}
	s.MinKeys = 10 * gap // the first gap keys have no duplicates
	s.Keys = func(n int) []string { return harness.Recent(n, share, gap) }
	side := func(name string, with ...func(*dedup.Config)) {
		d := work.Full.Open(ctx, s, e.redis.Addr, 0, with...)
		run := work.Callers(m.callers, d.One(work.Either))
		if m.callers == 0 {
			run = work.InBatches(workers, work.Typical, d.Batch(work.Either, nil))
		}
		s.Side(name, run)
	}
	side(cacheOff)
	side(cacheOn, work.Cached)
}

func (e *env) local(all *harness.Groups) {
	const title = "duplicates answered in process"
	all.Add("in-process", 1, title, func(ctx context.Context, s *harness.Setup) {
		keys := harness.FreshKeys(1 << 15)
		d := work.Full.Open(ctx, s, e.redis.Addr, 0, work.Cached)
		timing := &harness.Timing{Keys: keys}
		work.InBatches(workers, work.Typical, d.Batch(work.New, nil))(ctx, timing)
		// The second time fills the cache.
		work.InBatches(workers, work.Typical, d.Batch(work.Known, nil))(ctx, timing)
		exact, claim := peer.NewMap(keys), d.One(work.Known)
		// The timings are short because twice a second the cache asks the store for forgotten keys,
		// which allocates.
		loop := work.Loop{Budget: min(e.budget, 50*time.Millisecond), Goroutines: 1}
		side := func(name string, known func(key string) bool) {
			loop.Side(s, name, func() work.Job {
				return func(from, n uint64) {
					for i := range n {
						if key := keys[(from+i)%uint64(len(keys))]; !known(key) {
							must.Do(fmt.Errorf("%s: is not remembered", key))
						}
					}
				}
			})
		}
		side(exactSide, exact.Seen)
		side(claimSide, func(key string) bool { claim(ctx, key); return true })
		side(seenSide, func(key string) bool { return must.Get(d.Seen(ctx, key)) })
		compareLocal(s)
	})
}

func compareLocal(s *harness.Setup) {
	for _, side := range []string{seenSide, claimSide} {
		goals := side == seenSide // Claim is only for information: it also makes a Claim
		call, _, _ := strings.Cut(strings.TrimPrefix(side, "onceward "), ",")
		name := "duplicates answered in process, " + call
		s.Compare(side, exactSide).Called(name).In(harness.Nanos).
			Wants(harness.When(goals, "<= 150 ns (stretch 75 ns)"))
		s.Compare(side, exactSide).Called(name + ", allocations").In(harness.Allocs).
			Wants(harness.When(goals, "<= 0 allocations"))
	}
}
