package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a side that reports these rates, one per call.
func scripted(name string, order *[]string, rates ...float64) Side {
	return Side{Name: name, External: func(context.Context) (Sample, error) {
		*order = append(*order, name)
		rate := rates[0]
		rates = append(rates[1:], rate)
		return Sample{Rate: rate, Allocs: rate / 2}, nil
	}}
}

func TestRunPairsAndRotates(t *testing.T) {
	var order []string
	group := Group{Workload: "w", X: 3, Title: "work",
		Open: func(_ context.Context, s *Setup) error {
			*s = Setup{
				// The first rate warms up and must not count.
				Sides: []Side{scripted("ours", &order, 9999, 10, 30, 40),
					scripted("theirs", &order, 1, 20, 30, 20)},
				Pairs: []Pair{
					{Name: "rate", Side: "ours", Against: "theirs", Text: "them",
						Goal: AtLeast(1, 0)},
					{Name: "allocations", Side: "ours", Metric: Allocs,
						Goal: ValueAtMost(14, 0, "")},
				},
			}
			return nil
		}}
	rows, err := Runner{Rounds: 3, MaxKeys: 10, Budget: time.Second}.Run(t.Context(),
		[]Group{group})
	if err != nil {
		t.Fatal(err)
	}
	wantOrder := []string{"ours", "theirs", "ours", "theirs", "theirs", "ours", "ours", "theirs"}
	if !slices.Equal(order, wantOrder) {
		t.Errorf("order %v, want %v", order, wantOrder)
	}
	if len(rows) != 3 {
		t.Fatalf("%d rows, want two pairs and the side without one", len(rows))
	}
	r := rows[0] // rounds: 10/20, 30/30, 40/20
	if r.Value != 30 || r.AgainstValue != 20 || r.Ratio != 1 || r.Spread != [2]float64{0.5, 2} ||
		r.Rounds != 3 || !r.OK || r.Against != "them" {
		t.Errorf("row %+v", r)
	}
	if r.Workload != "w" || r.Side != "ours" || r.X != 3 || r.Unit != "keys/s" {
		t.Errorf("row %+v", r)
	}
	if rows[1].Value != 15 || rows[1].OK {
		t.Errorf("a goal of the value: %+v", rows[1])
	}
	if rows[2].Side != "theirs" || rows[2].Goal != "" || rows[2].Against != "" {
		t.Errorf("the side without a pair: %+v", rows[2])
	}
}

// A side that always came after the same one would pay for what that one leaves behind.
func TestTurnsVary(t *testing.T) {
	const rounds = 3
	for _, sides := range []int{1, 2, 3, 10} {
		before := make(map[int]map[int]bool) // of each side, those that it came after
		last := -1
		for round := range rounds {
			came := make(map[int]bool)
			for i := range sides {
				at := sideAt(i, round, sides)
				if before[at] == nil {
					before[at] = make(map[int]bool)
				}
				before[at][last] = true
				came[at], last = true, at
			}
			if len(came) != sides {
				t.Errorf("%d of %d sides came in round %d", len(came), sides, round)
			}
		}
		for side, seen := range before {
			if sides > 2 && len(seen) < 2 {
				t.Errorf("of %d sides, %d always comes after the same one: %v", sides, side, seen)
			}
		}
	}
}

// A server that tells no CPU time gives 0 for both sides, and 0 is less than any bound.
func TestGoalIsNotReachedByNothing(t *testing.T) {
	var order []string
	group := Group{Open: func(_ context.Context, s *Setup) error {
		*s = Setup{
			Sides: []Side{scripted("ours", &order, 1), scripted("theirs", &order, 1)},
			Pairs: []Pair{{Side: "ours", Against: "theirs", Metric: ServerMicros,
				Goal: AtMost(1, 0)}},
		}
		return nil
	}}
	rows, err := Runner{Rounds: 1, MaxKeys: 1, Budget: 1}.Run(t.Context(), []Group{group})
	if err != nil || rows[0].OK {
		t.Errorf("%+v, %v", rows, err)
	}
}

func TestRunSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		seen := make(map[string]bool)
		side := Side{Name: "s", Run: func(_ context.Context, timing *Timing) error {
			sizes = append(sizes, len(timing.Keys))
			time.Sleep(time.Microsecond)
			for _, key := range timing.Keys {
				if seen[key] || len(key) != 36 {
					return fmt.Errorf("key %q came twice, or is no UUID", key)
				}
				seen[key] = true
			}
			return nil
		}}
		for _, c := range []struct {
			name  string
			setup Setup
			most  int
		}{
			{"the run's bound", Setup{}, 100},
			{"the group's bound", Setup{MaxKeys: 30}, 30},
			{"a multiple", Setup{Multiple: 64}, 128},
			{"a least", Setup{MinKeys: 200}, 200},
		} {
			sizes = nil
			c.setup.Sides = []Side{side}
			group := Group{Open: func(_ context.Context, s *Setup) error {
				*s = c.setup
				return nil
			}}
			if _, err := (Runner{Rounds: 1, MaxKeys: 100, Budget: time.Second}).Run(t.Context(),
				[]Group{group}); err != nil {
				t.Fatal(err)
			}
			if got := sizes[len(sizes)-1]; got != c.most {
				t.Errorf("%s: %d keys, want %d", c.name, got, c.most)
			}
		}
	})
}

func TestRunEnds(t *testing.T) {
	closed := false
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	failing := Group{Title: "work", Open: func(_ context.Context, s *Setup) error {
		s.Defer(func() error { closed = true; return nil })
		s.Side("s", func(ctx context.Context, _ *Timing) error {
			cancel(stop)
			return ctx.Err()
		})
		return nil
	}}
	if _, err := (Runner{Rounds: 1, MaxKeys: 1, Budget: 1}).Run(ctx,
		[]Group{failing}); !errors.Is(err, stop) {
		t.Errorf("error %v, want the cause", err)
	}
	if !closed {
		t.Error("the group was not closed")
	}
}

// Without a bound a timing is as long as its budget: where 0 stood for "one batch", figures of a
// store were those of its first round trip.
func TestWithoutABoundTheBudgetSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ run, setup, want int }{{0, 0, 1000}, {0, 100, 100},
			{500, 0, 500}, {500, 100, 100}} {
			var keys int
			side := Side{Name: "a microsecond a key",
				Run: func(_ context.Context, timing *Timing) error {
					keys = len(timing.Keys)
					time.Sleep(time.Duration(keys) * time.Microsecond)
					return nil
				}}
			group := Group{Open: func(_ context.Context, s *Setup) error {
				*s = Setup{Sides: []Side{side}, MaxKeys: c.setup, MinKeys: 1, Multiple: 1}
				return nil
			}}
			_, err := Runner{Rounds: 1, MaxKeys: c.run,
				Budget: 20 * time.Millisecond}.Run(t.Context(), []Group{group})
			if err != nil {
				t.Fatal(err)
			}
			if c.run+c.setup == 0 && keys < c.want || c.run+c.setup > 0 && keys != c.want {
				t.Errorf("bounds %d and %d: %d keys, want %d", c.run, c.setup, keys, c.want)
			}
		}
	})
}

// A group may work on another server than the run.
func TestServerOfAGroup(t *testing.T) {
	reads := func(each time.Duration) func(context.Context) (time.Duration, error) {
		total := time.Duration(0)
		return func(context.Context) (time.Duration, error) { total += each; return total, nil }
	}
	side := Side{Name: "s", Run: func(context.Context, *Timing) error { return nil }}
	group := func(of func(context.Context) (time.Duration, error)) Group {
		return Group{Open: func(_ context.Context, s *Setup) error {
			*s = Setup{Sides: []Side{side}, MinKeys: 10, MaxKeys: 10, ServerCPU: of}
			return nil
		}}
	}
	r := Runner{Rounds: 1, Budget: time.Nanosecond}
	r.Meter.ServerCPU = reads(time.Millisecond)
	rows, err := r.Run(t.Context(), []Group{group(reads(time.Second)), group(nil)})
	if err != nil {
		t.Fatal(err)
	}
	if rows[0].ServerUS != 100_000 || rows[1].ServerUS != 100 {
		t.Errorf("%v and %v us a key, want 100000 and 100", rows[0].ServerUS, rows[1].ServerUS)
	}
}

// A group's connections are closed when it cannot be opened whole, the last first; and a close that
// fails is an error of the run.
func TestWhatWasOpenedIsClosed(t *testing.T) {
	broken, unclosed := errors.New("broken"), errors.New("unclosed")
	var order []int
	group := Group{Open: func(_ context.Context, s *Setup) error {
		for i := range 2 {
			s.Defer(func() error { order = append(order, i); return unclosed })
		}
		return broken
	}}
	_, err := Runner{Rounds: 1}.Run(t.Context(), []Group{group})
	if !errors.Is(err, broken) || !errors.Is(err, unclosed) || !slices.Equal(order, []int{1, 0}) {
		t.Errorf("%v, closed %v", err, order)
	}
}

// Rows of what is not timed in turn are rows of their group.
func TestFiguresBelongToTheirGroup(t *testing.T) {
	group := Group{Workload: "w", X: 3, Open: func(_ context.Context, s *Setup) error {
		s.Rows = []Row{Figure("n", "s", 9, "B", ValueAtMost(10, 0, "B")),
			Compared("n", "s", 9, "B", "other", 6, AtMost(1, 0))}
		return nil
	}}
	rows, err := Runner{Rounds: 5}.Run(t.Context(), []Group{group})
	if err != nil {
		t.Fatal(err)
	}
	want := []Row{
		{Name: "n", Side: "s", Value: 9, Unit: "B", Rounds: 1, Goal: "<= 10 B", OK: true,
			Workload: "w", X: 3},
		{Name: "n", Side: "s", Value: 9, Unit: "B", Rounds: 1, Goal: "<= 1x", Against: "other",
			AgainstValue: 6, Ratio: 1.5, Spread: [2]float64{1.5, 1.5}, Workload: "w", X: 3},
	}
	if !slices.Equal(rows, want) {
		t.Errorf("%+v, want %+v", rows, want)
	}
}
