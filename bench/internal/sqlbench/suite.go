// Package sqlbench is what the SQL benchmarks measure: the effect of messages and the record of
// them in one transaction, next to the effect alone and to what else is done. suite.go has the
// workloads and their goals, ground.go the sides, hand.go the effect and what programs do by hand.
package sqlbench

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/sqladapter"
)

// Suite is records and effects in PostgreSQL, MariaDB and SQLite.
var Suite = harness.Suite{
	Area: "sql", About: "records and effects in PostgreSQL, MariaDB and SQLite",
	Full:  harness.Scale{Rounds: 5, Keys: 200_000, Budget: 250 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Keys: 200_000, Budget: 150 * time.Millisecond},
	Open:  openSuite,
}

type env struct {
	servers []*server.Database
	fill    int // marks that are made when bytes are counted
	live    int // marks that a table keeps when its windows pass
	windows int // windows that pass
}

func openSuite(ctx context.Context, o harness.Options, b *harness.Bench) {
	e := &env{fill: 1_000_000, live: 100_000, windows: 10}
	if o.Quick {
		e.fill, e.live = 100_000, 20_000
	}
	b.LeaveOut("time-ordered keys, which sqladapter does not have")
	b.Modules = []string{"pgx", "go-sql-driver", "modernc.org/sqlite"}
	sqlite := server.Private // is always there
	if o.List {
		sqlite = server.Listed
	}
	for i, dialect := range []sqladapter.Dialect{sqladapter.Postgres, sqladapter.MySQL,
		sqladapter.SQLite} {
		address := []string{o.Postgres, o.MariaDB, sqlite}[i]
		if s := server.OpenDatabase(ctx, b, dialect, address); s != nil {
			e.servers = append(e.servers, s)
		}
	}
	b.Groups, b.Meter.ServerCPU = e.groups(), e.cpu
}

// cpu reads the CPU time of all servers together: at any time one of them alone has work.
func (e *env) cpu(ctx context.Context) (total time.Duration) {
	for _, s := range e.servers {
		total += s.CPU().Read(ctx)
	}
	return total
}

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
	typical    = work.Typical
	typicalFor = 8 // connections
)

type point struct {
	server      *server.Database
	connections int
	batch       int
}

// workload is the family of the points that a plot draws as lines over the batch.
func (p point) workload() string {
	return p.server.Name + ", " + english.Plural(p.connections, "connection", "")
}

func (p point) title() string { return fmt.Sprintf("%s, batch %d", p.workload(), p.batch) }

func (p point) postgres() bool { return p.server.Dialect == sqladapter.Postgres }

// central is the point at which the less common ways take part, too.
func (p point) central() bool {
	return p.postgres() && p.connections == typicalFor && p.batch == typical
}

// points of a server. SQLite has one writer at a time.
func points(s *server.Database) []point {
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

func (e *env) groups() (all harness.Groups) {
	for _, s := range e.servers {
		for _, p := range points(s) {
			all.Add(p.workload(), p.batch, p.title(), p.open).Detail = p.batch == 64 ||
				p.postgres() && p.connections != typicalFor
		}
	}
	for _, s := range e.servers {
		e.size(&all, s)
		e.deletion(&all, s)
		if s.Dialect == sqladapter.Postgres {
			e.turnover(&all, s)
		}
	}
	return all
}

func (p point) open(ctx context.Context, s *harness.Setup) {
	g := open(ctx, s, p.server, p.connections)
	add := func(name string, size int, do work.Batch) {
		s.Sides = append(s.Sides, harness.Side{Name: name,
			Run: work.InBatches(p.connections, size, do), MinKeys: p.connections * size})
	}
	add(effectSide, p.batch, g.effectAlone)
	add(markSide, p.batch, g.marking(g.marks))
	add(bothSide, p.batch, g.both())
	add(fenceSide, p.batch, g.fenced(p.connections))
	add(oneByOneSide, p.batch, g.oneByOne())
	add(handEachSide, 1, g.handEach)
	p.compare(s)
	if !p.central() {
		return
	}
	add(doEachSide, 1, g.doEach)
	add(atOnceSide, p.batch, g.effectAtOnce)
	add(handBatchSide, p.batch, g.handBatch)
	add(repeatedSide, p.batch, g.both())
	s.Sides[len(s.Sides)-1].Prepare = g.duplicates(20_000)
	n := g.native(ctx, s, p.connections)
	add(nativeEffectSide, p.batch, n.effectAlone)
	add(nativeBothSide, p.batch, n.both)
	add(nativeHandSide, p.batch, n.handBatch)
}

// compare asks the goals; a row without one is for information.
func (p point) compare(s *harness.Setup) {
	cpu := func(side, against string) {
		s.Compare(side, against).Called(p.title() + ", CPU of client and server").
			In(harness.CPUMicros).Wants("<= 1.05x (stretch 1x)")
	}
	const ceiling = ">= 0.45x (stretch 0.55x)"
	here := func(g harness.Goal) harness.Goal { return harness.When(p.postgres(), g) }
	s.Compare(bothSide, effectSide).Wants(here(ceiling))
	s.Compare(bothSide, effectSide).As("the additive ideal, 1/(1/effect + 1/record)").
		Wants(here(">= 0.95x (stretch 1x)")).And = markSide
	s.Compare(bothSide, handEachSide).Wants(p.perMessage())
	s.Compare(bothSide, oneByOneSide)
	s.Compare(fenceSide, effectSide).Wants(here(">= 0.9x (stretch 1x)"))
	if !p.central() {
		return
	}
	s.Compare(repeatedSide, bothSide)
	s.Compare(doEachSide, handEachSide)
	s.Compare(atOnceSide, effectSide)
	s.Compare(bothSide, handBatchSide)
	cpu(bothSide, handBatchSide)
	s.Compare(nativeBothSide, nativeEffectSide).Wants(ceiling)
	s.Compare(nativeBothSide, bothSide).As("the same through database/sql")
	s.Compare(nativeBothSide, nativeHandSide)
	cpu(nativeBothSide, nativeHandSide)
}

func (p point) perMessage() harness.Goal {
	switch {
	case p.batch == 1024 && p.postgres():
		return ">= 24x (stretch 27x)"
	case p.batch != typical:
		return ""
	}
	return map[sqladapter.Dialect]harness.Goal{
		sqladapter.Postgres: ">= 18x (stretch 22x)", sqladapter.MySQL: ">= 20x",
		sqladapter.SQLite: ">= 25x",
	}[p.server.Dialect]
}
