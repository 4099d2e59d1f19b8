package redisbench

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/work"
)

// keeper is a layout of remembered keys.
type keeper struct {
	name string
	goal harness.Goal
	// fill makes the server remember n keys.
	fill func(ctx context.Context, s *harness.Setup, n int)
}

// memory: what a finished key costs the server.
func (e *env) memory() []harness.Group {
	return []harness.Group{{
		Workload: "memory", X: float64(e.fill),
		Title:  fmt.Sprintf("bytes per remembered key, %s keys", harness.Short(e.fill)),
		Unable: e.needsMemory(), Open: e.measureMemory,
	}}
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
		perKey := e.bytesPerKey(ctx, k)
		if len(s.Rows) == 0 {
			s.Row(harness.Figure(name, k.name, perKey, unit, k.goal))
			continue
		}
		s.Row(harness.Compared(name, k.name, perKey, unit, s.Rows[0].Side, s.Rows[0].Value,
			k.goal))
	}
	e.redis.Empty(ctx)
}

func (e *env) bytesPerKey(ctx context.Context, k keeper) float64 {
	e.redis.Empty(ctx)
	before := e.redis.Memory(ctx)
	filling := &harness.Setup{}
	err := must.Try(func() { k.fill(ctx, filling, e.fill) })
	must.Do(filling.Close()) // connections have buffers
	must.Do(err)
	return float64(e.redis.Memory(ctx)-before) / float64(e.fill)
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
func (e *env) remembered() []harness.Group {
	var groups []harness.Group
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
