package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// few is what a small deployment remembers.
const few = 10_000

// remembered: what a duplicate costs when much is remembered. The few and the many live in
// two databases of one server, so that both are asked in turn.
func (e *Env) remembered() []harness.Group {
	var groups []harness.Group
	for _, l := range others(redisadapter.Mixed) { // a duplicate is to it what it is to Compact
		for _, many := range e.Grown {
			title := fmt.Sprintf("growth %s -> %s keys, duplicate check, %s", short(few), short(many), l.name)
			groups = append(groups, harness.Group{
				Workload: "remembered", X: float64(many), Title: title, Memory: many > 1_000_000, Own: true,
				Open: func(ctx context.Context) (harness.Setup, error) { return e.openRemembered(ctx, l, title, many) },
			})
		}
	}
	return groups
}

func (e *Env) openRemembered(ctx context.Context, l layout, title string, many int) (harness.Setup, error) {
	var opened closing
	s := harness.Setup{Multiple: workers * typical}
	sizes := []int{few, many}
	for db, size := range sizes {
		o, err := l.expecting(size).open(ctx, e.Server.Addr, db, long)
		if err != nil {
			opened.all()
			return s, err
		}
		opened.add(o.close)
		if err := o.fill(ctx, size); err != nil {
			opened.all()
			return s, err
		}
		pick := func(_ context.Context, t *harness.Timing) error {
			for i := range t.Keys {
				t.Keys[i] = numbered(rand.IntN(size))
			}
			return nil
		}
		s.Sides = append(s.Sides, harness.Side{
			Name: sideOf(l, size), Prepare: pick,
			Run: inBatches(workers, typical, o.duplicates),
		})
	}
	s.Pairs = []harness.Pair{{
		Name: title, Side: sideOf(l, many), Against: sideOf(l, few), Metric: harness.Micros, Goal: harness.AtMost(1.6, 1.3),
	}}
	s.Close = opened.all
	return s, nil
}

func sideOf(l layout, size int) string { return fmt.Sprintf("%s, %s remembered", l.name, short(size)) }

// long is a window that no measurement outlives.
func long(c *dedup.Config) { c.Window = time.Hour }

// fill makes the store remember the first n numbered keys.
func (o *ours) fill(ctx context.Context, n int) error {
	const part = 1 << 14 // keys that exist here at a time
	run := inBatches(2*workers, typical, o.cycles(nil))
	for from := 0; from < n; from += part {
		keys := make([]string, min(part, n-from))
		for i := range keys {
			keys[i] = numbered(from + i)
		}
		if err := run(ctx, &harness.Timing{Keys: keys}); err != nil {
			return err
		}
	}
	return nil
}

// numbered is as long as a UUID.
func numbered(i int) string { return fmt.Sprintf("remembered-key-%021d", i) }

// short is a number as people say it.
func short(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%d M", n/1_000_000)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%d k", n/1000)
	default:
		return fmt.Sprint(n)
	}
}
