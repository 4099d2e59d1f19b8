package workload

import (
	"context"
	"fmt"
	"strings"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/peer"
)

// keeper is a layout of remembered keys.
type keeper struct {
	name string
	goal harness.Goal
	// fill makes the server remember n keys and returns when its connections are closed.
	fill func(ctx context.Context, n int) error
}

// memory: what a finished key costs the server.
func (e *Env) memory() []harness.Group {
	return []harness.Group{{
		Workload: "memory", X: float64(e.Fill), Title: fmt.Sprintf("bytes per remembered key, %s keys", short(e.Fill)), Memory: true,
		Measure: e.measureMemory,
	}}
}

func (e *Env) keepers() []keeper {
	keepers := []keeper{
		{name: "string, 46-byte key, 28-byte token", fill: e.fillRaw("dd:orders:", 36, "0123456789abcdef0123456789ab")},
		{name: "string, 46-byte key, value 1", fill: e.fillRaw("dd:orders:", 36, "1")},
		{name: "string, 18-byte digest key, value 1", fill: e.fillRaw("d:", 16, "1")},
	}
	for _, l := range layouts {
		var goal harness.Goal
		if l.kind == compact().kind {
			goal = harness.ValueAtMost(10, 9, "B")
		}
		keepers = append(keepers, keeper{name: l.name, goal: goal, fill: func(ctx context.Context, n int) error {
			o, err := l.expecting(n).open(ctx, e.Server.Addr, 0, long)
			if err != nil {
				return err
			}
			defer o.close()
			return o.fill(ctx, n)
		}})
	}
	return keepers
}

func (e *Env) measureMemory(ctx context.Context) ([]harness.Row, error) {
	var rows []harness.Row
	for _, k := range e.keepers() {
		perKey, err := e.bytesPerKey(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		r := harness.Row{
			Name: "bytes per remembered key", Value: perKey, Unit: "B/key", Rounds: 1, Goal: k.goal.String(),
			Workload: "memory", Side: k.name, X: float64(e.Fill),
		}
		if len(rows) > 0 {
			r.Against, r.AgainstValue, r.Ratio = rows[0].Side, rows[0].Value, perKey/rows[0].Value
			r.Spread = [2]float64{r.Ratio, r.Ratio}
		}
		r.OK = k.goal.Reached(r.Value, r.Ratio)
		rows = append(rows, r)
	}
	return rows, e.Server.Empty(ctx)
}

func (e *Env) bytesPerKey(ctx context.Context, k keeper) (float64, error) {
	if err := e.Server.Empty(ctx); err != nil {
		return 0, err
	}
	before, err := e.Server.Memory(ctx)
	if err != nil {
		return 0, err
	}
	if err := k.fill(ctx, e.Fill); err != nil {
		return 0, err
	}
	after, err := e.Server.Memory(ctx)
	return float64(after-before) / float64(e.Fill), err
}

// fillRaw remembers keys of a prefix and that many bytes more.
func (e *Env) fillRaw(prefix string, length int, value string) func(context.Context, int) error {
	return func(ctx context.Context, n int) error {
		raw, err := dialRaw(ctx, e.Server.Addr, 1)
		if err != nil {
			return err
		}
		defer raw.close()
		keys := make([]string, 0, typical)
		for i := range n {
			number := fmt.Sprint(i)
			keys = append(keys, prefix+strings.Repeat("0", length-len(number))+number)
			if len(keys) == typical || i == n-1 {
				if err := raw[0].ClaimNew(ctx, keys, value, 6*peer.Window); err != nil {
					return err
				}
				keys = keys[:0]
			}
		}
		return nil
	}
}
