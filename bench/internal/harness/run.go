package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/onceward/onceward/bench/internal/must"
)

// Runner measures groups.
type Runner struct {
	Meter    Meter
	Rounds   int           // that count; one more goes before them
	MaxKeys  int           // of one timing; 0: as many as the budget has time for
	Budget   time.Duration // one timing should take about this long
	Progress Progress
	// Between runs before every group, to empty the server. Nil: nothing.
	Between func(context.Context)
}

// Progress learns what is going on. A nil function is not called.
type Progress struct {
	Step func(title string, group, groups, round, rounds int) // a round begins; round 0 is opening
	Done func([]Row)                                          // a group has ended
}

// Run measures all groups and returns their rows. When ctx ends it returns what is
// complete, with the error.
func (r Runner) Run(ctx context.Context, groups []Group) ([]Row, error) {
	var rows []Row
	for i, g := range groups {
		more, err := r.group(ctx, g, func(round int) {
			if r.Progress.Step != nil {
				r.Progress.Step(g.Title, i, len(groups), round, r.Rounds)
			}
		})
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return rows, fmt.Errorf("%s: %w", g.Title, err)
		}
		if r.Progress.Done != nil {
			r.Progress.Done(more)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func (r Runner) group(ctx context.Context, g Group, step func(round int)) (rows []Row, err error) {
	s := &Setup{}
	defer func() { err = errors.Join(err, s.Close()) }()
	defer must.Catch(&err)
	if step(0); r.Between != nil {
		r.Between(ctx)
	}
	g.Open(ctx, s)
	if s.ServerCPU != nil {
		r.Meter.ServerCPU = s.ServerCPU
	}
	sizes := make([]int, len(s.Sides))
	for i, side := range s.Sides {
		sizes[i] = r.calibrate(ctx, s, side)
	}
	samples := make(map[string][]Sample)
	for round := range r.Rounds {
		if len(s.Sides) > 0 {
			step(round + 1)
		}
		for i := range s.Sides {
			at := sideAt(i, round, len(s.Sides))
			name := s.Sides[at].Name
			samples[name] = append(samples[name],
				r.Meter.Time(ctx, s.Sides[at], s.keys(sizes[at])))
		}
	}
	for i := range s.Rows {
		if s.Rows[i].Workload == "" {
			s.Rows[i].Workload, s.Rows[i].X = g.Workload, g.X
		}
	}
	return append(g.rows(s, samples), s.Rows...), nil
}

// sideAt is the side that comes as the i-th of a round. Rounds begin with another one each,
// and every other one goes backwards: nobody always comes first, or after the same one,
// whose keys the server may still be expiring.
func sideAt(i, round, sides int) int {
	if round%2 == 1 {
		i = sides - i
	}
	return (round + i) % sides
}

// calibrate warms a side up and says how many keys fill the budget.
func (r Runner) calibrate(ctx context.Context, s *Setup, side Side) int {
	if side.External != nil {
		r.Meter.Time(ctx, side, nil)
		return 0
	}
	most := min(orAny(r.MaxKeys), orAny(s.MaxKeys))
	least := max(s.MinKeys, side.MinKeys)
	// From few keys on, because a side may take milliseconds for each; the first timing opens
	// the connections.
	n := s.roundUp(max(min(most, 64), least))
	for range 2 {
		rate := r.Meter.Time(ctx, side, s.keys(n)).Rate
		n = s.roundUp(max(min(most, max(n/2, int(rate*r.Budget.Seconds()))), least))
	}
	return n
}

// orAny is a limit, where 0 is none.
func orAny(limit int) int { return cmp.Or(limit, math.MaxInt) }

func (s *Setup) roundUp(n int) int {
	m := max(s.Multiple, 1)
	return max((n+m-1)/m, 1) * m
}

func (s *Setup) keys(n int) []string {
	if s.Keys != nil {
		return s.Keys(n)
	}
	return FreshKeys(n)
}
