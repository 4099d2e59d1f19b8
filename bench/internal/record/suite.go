package record

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/onceward/onceward/bench/internal/database"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/sqladapter"
)

// Names of the sides.
const (
	effectSide    = "effect alone, batched"
	atOnceSide    = "effect alone, batched, in one statement without BEGIN"
	markSide      = "record alone, batched"
	bothSide      = "record + effect, handler per batch"
	oneByOneSide  = "record + effect, handler per message"
	fenceSide     = "offset fence + effect, batched"
	handEachSide  = "a transaction per message, by hand"
	doEachSide    = "a transaction per message, Do"
	handBatchSide = "record + effect, batched, by hand"
	repeatedSide  = "record + effect, 90 % duplicates"
)

// The point that most can be said about; a quick run has it.
const (
	typical    = 256
	typicalFor = 8 // connections
)

// point is one workload.
type point struct {
	server      *database.Server
	connections int
	batch       int
}

// Family of the points that a plot draws as lines over the batch.
func Family(d sqladapter.Dialect, connections int) string {
	if connections == 1 {
		return title(d) + ", 1 connection"
	}
	return fmt.Sprintf("%s, %d connections", title(d), connections)
}

func (p point) workload() string { return Family(p.server.Dialect, p.connections) }
func (p point) title() string    { return fmt.Sprintf("%s, batch %d", p.workload(), p.batch) }

// central is the point at which the less common ways take part, too.
func (p point) central() bool {
	return p.server.Dialect == sqladapter.Postgres && p.connections == typicalFor && p.batch == typical
}

// points of a server. SQLite has one writer at a time.
func points(s *database.Server) []point {
	connections := map[sqladapter.Dialect][]int{
		sqladapter.Postgres: {1, 8, 32}, sqladapter.MySQL: {8}, sqladapter.SQLite: {1},
	}[s.Dialect]
	var all []point
	for _, n := range connections {
		for _, batch := range []int{64, typical, 1024} {
			all = append(all, point{s, n, batch})
		}
	}
	return all
}

// Groups are all workloads, in the order in which they run.
func (e *Env) Groups() []harness.Group {
	var groups []harness.Group
	for _, s := range e.Servers {
		for _, p := range points(s) {
			groups = append(groups, harness.Group{
				Workload: p.workload(), X: float64(p.batch), Title: p.title(),
				Detail: p.batch == 64 || s.Dialect == sqladapter.Postgres && p.connections != typicalFor,
				Open:   p.open,
			})
		}
	}
	for _, s := range e.Servers {
		groups = append(groups, e.storage(s)...)
	}
	return groups
}

// Match returns the groups whose title matches and that the run has time for.
func (e *Env) Match(groups []harness.Group, match *regexp.Regexp) (chosen []harness.Group, leftOut []string) {
	for _, g := range groups {
		if match.MatchString(g.Title) && (!g.Detail || !e.Quick) {
			chosen = append(chosen, g)
		}
	}
	for _, d := range []sqladapter.Dialect{sqladapter.Postgres, sqladapter.MySQL, sqladapter.SQLite} {
		if !slices.ContainsFunc(e.Servers, func(s *database.Server) bool { return s.Dialect == d }) {
			leftOut = append(leftOut, title(d)+": there is none")
		}
	}
	if e.Quick {
		leftOut = append(leftOut, "points between others: a quick run, for orientation")
	}
	return chosen, append(leftOut, "time-ordered keys, which sqladapter does not have")
}

// open prepares the sides of a point.
func (p point) open(ctx context.Context) (harness.Setup, error) {
	g, err := open(ctx, p.server, p.connections)
	if err != nil {
		return harness.Setup{}, err
	}
	s := harness.Setup{Sides: p.sides(g), Pairs: p.pairs(), Close: func() { _ = g.close() }}
	if !p.central() {
		return s, nil
	}
	n, err := g.native(ctx, p.connections)
	if err != nil {
		s.Close()
		return harness.Setup{}, err
	}
	s.Close = func() { n.pool.Close(); _ = g.close() }
	s.Sides = append(s.Sides, p.batched(nativeEffectSide, n.effectAlone), p.batched(nativeBothSide, n.both))
	s.Pairs = append(s.Pairs, p.nativePairs()...)
	return s, nil
}

// batched is a side that takes batches.
func (p point) batched(name string, do work) harness.Side {
	return harness.Side{Name: name, Run: inBatches(p.connections, p.batch, do), MinKeys: p.connections * p.batch}
}

func (p point) sides(g *ground) []harness.Side {
	batched := p.batched
	single := func(name string, do work) harness.Side {
		return harness.Side{Name: name, Run: inBatches(p.connections, 1, do), MinKeys: p.connections}
	}
	sides := []harness.Side{
		batched(effectSide, g.effectAlone), batched(markSide, g.markAlone), batched(bothSide, g.both),
		batched(fenceSide, g.fenced(p.connections)), batched(oneByOneSide, g.oneByOne), single(handEachSide, g.handEach),
	}
	if !p.central() {
		return sides
	}
	repeated := batched(repeatedSide, g.both)
	repeated.Prepare = g.duplicates(20_000)
	return append(sides, single(doEachSide, g.doEach), batched(atOnceSide, g.effectAtOnce), batched(handBatchSide, g.handBatch), repeated)
}

// pairs and their goals; what has none is told for information.
func (p point) pairs() []harness.Pair {
	var pairs []harness.Pair
	add := func(side, against, text string, goal harness.Goal) {
		pairs = append(pairs, harness.Pair{Name: p.title(), Side: side, Against: against, Text: text, Goal: goal})
	}
	postgres := p.server.Dialect == sqladapter.Postgres
	add(bothSide, effectSide, "", when(postgres, harness.AtLeast(0.45, 0.55)))
	pairs = append(pairs, harness.Pair{
		Name: p.title(), Side: bothSide, Against: effectSide, And: markSide, Text: idealText, Goal: when(postgres, harness.AtLeast(0.95, 1)),
	})
	add(bothSide, handEachSide, "", p.perMessage())
	add(bothSide, oneByOneSide, "", harness.Goal{})
	add(fenceSide, effectSide, "", when(postgres, harness.AtLeast(0.9, 1)))
	if p.central() {
		add(repeatedSide, bothSide, "", harness.Goal{})
		add(doEachSide, handEachSide, "", harness.Goal{})
		add(atOnceSide, effectSide, "", harness.Goal{})
		add(bothSide, handBatchSide, "", harness.Goal{})
		pairs = append(pairs, harness.Pair{
			Name: p.title() + ", CPU of client and server", Side: bothSide, Against: handBatchSide, Metric: harness.CPUMicros, Goal: harness.AtMost(1.05, 1),
		})
	}
	return pairs
}

const idealText = "the additive ideal, 1/(1/effect + 1/record)"

// perMessage is the goal beside a transaction for every message.
func (p point) perMessage() harness.Goal {
	if p.batch == 1024 && p.server.Dialect == sqladapter.Postgres {
		return harness.AtLeast(24, 27)
	}
	if p.batch != typical {
		return harness.Goal{}
	}
	return map[sqladapter.Dialect]harness.Goal{
		sqladapter.Postgres: harness.AtLeast(18, 22), sqladapter.MySQL: harness.AtLeast(20, 0), sqladapter.SQLite: harness.AtLeast(25, 0),
	}[p.server.Dialect]
}

// when returns the goal if it holds here.
func when(holds bool, g harness.Goal) harness.Goal {
	if !holds {
		return harness.Goal{}
	}
	return g
}
