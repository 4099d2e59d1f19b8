package redisbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/work"
)

// keeper is a layout of remembered keys.
type keeper struct {
	name string
	goal harness.Goal
	// fill makes the server remember n keys.
	fill func(ctx context.Context, s *harness.Setup, n int) error
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
			fill: e.fillRaw("dd:orders:", 36, "0123456789abcdef0123456789ab")},
		{name: "string, 46-byte key, value 1", fill: e.fillRaw("dd:orders:", 36, "1")},
		{name: "string, 18-byte digest key, value 1", fill: e.fillRaw("d:", 16, "1")},
	}
	for _, l := range work.Layouts {
		goal := harness.When(l.Kind == small().Kind, harness.ValueAtMost(10, 9, "B"))
		keepers = append(keepers, keeper{name: l.Name, goal: goal,
			fill: func(ctx context.Context, s *harness.Setup, n int) error {
				d, err := l.Expecting(n).Open(ctx, s, e.redis.Addr, 0, work.Long)
				if err != nil {
					return err
				}
				return d.Fill(ctx, n)
			}})
	}
	return keepers
}

func (e *env) measureMemory(ctx context.Context, s *harness.Setup) error {
	for _, k := range e.keepers() {
		perKey, err := e.bytesPerKey(ctx, s, k)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		const name, unit = "bytes per remembered key", "B/key"
		row := harness.Figure(name, k.name, perKey, unit, k.goal)
		if len(s.Rows) > 0 {
			row = harness.Compared(name, k.name, perKey, unit, s.Rows[0].Side,
				s.Rows[0].Value, k.goal)
		}
		s.Rows = append(s.Rows, row)
	}
	return e.redis.Empty(ctx)
}

func (e *env) bytesPerKey(ctx context.Context, s *harness.Setup, k keeper) (float64, error) {
	if err := e.redis.Empty(ctx); err != nil {
		return 0, err
	}
	before, err := e.redis.Memory(ctx)
	if err != nil {
		return 0, err
	}
	if err := k.fill(ctx, s, e.fill); err != nil {
		return 0, err
	}
	if err := s.Close(); err != nil { // connections have buffers
		return 0, err
	}
	after, err := e.redis.Memory(ctx)
	return float64(after-before) / float64(e.fill), err
}

// fillRaw remembers keys of a prefix and that many bytes more.
func (e *env) fillRaw(prefix string, length int, value string) func(context.Context, *harness.Setup,
	int) error {
	return func(ctx context.Context, s *harness.Setup, n int) error {
		raw, err := work.DialRaw(ctx, s, e.redis.Addr, 1)
		if err != nil {
			return err
		}
		keys := make([]string, 0, work.Typical)
		for i := range n {
			number := fmt.Sprint(i)
			keys = append(keys, prefix+strings.Repeat("0", length-len(number))+number)
			if len(keys) == work.Typical || i == n-1 {
				if err := raw[0].ClaimNew(ctx, keys, value, 6*peer.Window); err != nil {
					return err
				}
				keys = keys[:0]
			}
		}
		return nil
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

func (e *env) openCompactCPU(ctx context.Context, s *harness.Setup) error {
	filled := e.fill / 5
	// A timing adds a tenth of what is there: with its warm-up, a run fills the rest.
	s.Multiple, s.MaxKeys = workers*work.Typical, max(filled/10, workers*work.Typical)
	for _, l := range []work.Layout{plain(), small()} {
		d, err := l.Expecting(2*filled).Open(ctx, s, e.redis.Addr, 0, work.Long)
		if err != nil {
			return err
		}
		if err := d.Fill(ctx, filled); err != nil {
			return err
		}
		s.Side(l.Name, work.InBatches(workers, work.Typical, d.Batch(work.New, nil)))
	}
	s.Pair(harness.Pair{Name: "server CPU per cycle, compact against the plain string layout",
		Side: small().Name, Against: plain().Name,
		Metric: harness.ServerMicros, Goal: harness.AtMost(1, 0.75)},
		harness.Pair{Name: "throughput, compact against the plain string layout",
			Side: small().Name, Against: plain().Name})
	return nil
}

// few is what a small deployment remembers.
const few = 10_000

// remembered: what a duplicate costs when much is remembered. The few and the many live in
// two databases of one server, so that both are asked in turn.
func (e *env) remembered() []harness.Group {
	var groups []harness.Group
	for _, l := range work.Without(mixedIsCompact...) {
		for _, many := range e.grown {
			title := fmt.Sprintf("growth %s -> %s keys, duplicate check, %s", harness.Short(few),
				harness.Short(many), l.Name)
			g := harness.Group{Workload: "remembered", X: float64(many), Title: title,
				Open: func(ctx context.Context, s *harness.Setup) error {
					return e.openRemembered(ctx, s, l, many)
				}}
			if many > 1_000_000 {
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

func (e *env) openRemembered(ctx context.Context, s *harness.Setup, l work.Layout, many int) error {
	s.Multiple = workers * work.Typical
	side := func(size int) string {
		return fmt.Sprintf("%s, %s remembered", l.Name, harness.Short(size))
	}
	for db, size := range []int{few, many} {
		d, err := l.Expecting(size).Open(ctx, s, e.redis.Addr, db, work.Long)
		if err != nil {
			return err
		}
		if err := d.Fill(ctx, size); err != nil {
			return err
		}
		pick := func(_ context.Context, t *harness.Timing) error {
			for i := range t.Keys {
				t.Keys[i] = work.Numbered(rand.IntN(size))
			}
			return nil
		}
		s.Sides = append(s.Sides, harness.Side{Name: side(size), Prepare: pick,
			Run: work.InBatches(workers, work.Typical, d.Batch(work.Known, nil))})
	}
	s.Pair(harness.Pair{Side: side(many), Against: side(few), Metric: harness.Micros,
		Goal: harness.AtMost(1.6, 1.3)})
	return nil
}
