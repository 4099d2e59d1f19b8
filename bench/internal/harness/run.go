package harness

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Runner measures groups.
type Runner struct {
	Meter    Meter
	Rounds   int           // that count; one more goes before them
	MaxKeys  int           // of one timing; 0: as many as the budget has time for
	Budget   time.Duration // one timing should take about this long
	Progress Progress
	// Between runs before every group, to empty the server. Nil: nothing.
	Between func(context.Context) error
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
		if r.Between != nil {
			if err := r.Between(ctx); err != nil {
				return rows, err
			}
		}
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
	step(0)
	s := &Setup{}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := g.Open(ctx, s); err != nil {
		return nil, err
	}
	if s.ServerCPU != nil {
		r.Meter.ServerCPU = s.ServerCPU
	}
	sizes := make([]int, len(s.Sides))
	for i, side := range s.Sides {
		if sizes[i], err = r.calibrate(ctx, s, side); err != nil {
			return nil, fmt.Errorf("%s: %w", side.Name, err)
		}
	}
	samples := make(map[string][]Sample)
	for round := range r.Rounds {
		if len(s.Sides) > 0 {
			step(round + 1)
		}
		if err := r.round(ctx, s, sizes, round, samples); err != nil {
			return nil, err
		}
	}
	for i := range s.Rows {
		if s.Rows[i].Workload == "" {
			s.Rows[i].Workload, s.Rows[i].X = g.Workload, g.X
		}
	}
	return append(g.rows(s, samples), s.Rows...), nil
}

// round times every side once.
func (r Runner) round(ctx context.Context, s *Setup, sizes []int,
	round int, samples map[string][]Sample) error {
	for i := range s.Sides {
		at := sideAt(i, round, len(s.Sides))
		side := s.Sides[at]
		sample, err := r.Meter.Time(ctx, side, s.keys(sizes[at]))
		if err != nil {
			return fmt.Errorf("%s: %w", side.Name, err)
		}
		samples[side.Name] = append(samples[side.Name], sample)
	}
	return nil
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
func (r Runner) calibrate(ctx context.Context, s *Setup, side Side) (int, error) {
	most := math.MaxInt
	for _, limit := range []int{r.MaxKeys, s.MaxKeys} {
		if limit > 0 {
			most = min(most, limit)
		}
	}
	if side.External != nil {
		_, err := side.External(ctx)
		return 0, err
	}
	least := max(s.MinKeys, side.MinKeys)
	// From few keys on, because a side may take milliseconds for each; the first timing opens
	// the connections.
	n := s.roundUp(max(min(most, 64), least))
	for range 2 {
		sample, err := r.Meter.Time(ctx, side, s.keys(n))
		if err != nil {
			return 0, err
		}
		n = s.roundUp(max(min(most, max(n/2, int(sample.Rate*r.Budget.Seconds()))), least))
	}
	return n, nil
}

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
