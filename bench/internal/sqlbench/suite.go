// Package sqlbench holds the SQL benchmarks: the effects of messages and their records in one
// transaction, next to the effects alone and to other ways. suite.go has the workloads and their
// goals, ground.go the sides, including those that programs write by hand.
package sqlbench

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/sqladapter"
)

// Suite measures records and effects in PostgreSQL, MariaDB and SQLite.
var Suite = harness.Suite{
	Area: "sql", About: "records and effects in PostgreSQL, MariaDB and SQLite",
	Full:  harness.Scale{Rounds: 5, Keys: 200_000, Budget: 250 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Keys: 200_000, Budget: 150 * time.Millisecond},
	Open:  openSuite,
}

type env struct {
	servers []*server.Database
	fill    int // marks that are made when bytes are counted
	live    int // marks that a table keeps while its windows pass
	windows int // windows that pass
}

func openSuite(ctx context.Context, o harness.Options, b *harness.Bench) {
	e := &env{fill: 1_000_000, live: 100_000, windows: 10}
	if o.Quick {
		e.fill, e.live = 100_000, 20_000
	}
	b.Modules = []string{"pgx", "go-sql-driver", "modernc.org/sqlite"}
	sqlite := server.Private // always available
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

// cpu reads the CPU time of all servers together: only one of them has work at any time.
func (e *env) cpu(ctx context.Context) (total time.Duration) {
	for _, s := range e.servers {
		total += s.CPU().Read(ctx)
	}
	return total
}

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
	risingSide    = "record alone, batched, of UUIDs of version 7"
	risingBoth    = "record + effect, handler per batch, of UUIDs of version 7"

	nativeEffectSide = "effect alone, batched, pgx itself"
	nativeBothSide   = "record + effect, handler per batch, pgx itself"
	nativeHandSide   = "record + effect, batched, by hand, pgx itself"
)

// The point with the most comparisons; a quick run includes it.
const (
	typical    = work.Typical
	typicalFor = 8 // connections
)

type point struct {
	server      *server.Database
	connections int
	batch       int
}

// workload is the family of points that a plot draws as lines over the batch size.
func (p point) workload() string {
	return p.server.Name + ", " + english.Plural(p.connections, "connection", "")
}

func (p point) title() string { return fmt.Sprintf("%s, batch %d", p.workload(), p.batch) }

func (p point) postgres() bool { return p.server.Dialect == sqladapter.Postgres }

// ordered reports whether ids that carry their time take part at this point.
func (p point) ordered() bool {
	return p.server.Dialect != sqladapter.SQLite && p.connections == typicalFor &&
		p.batch == typical
}

// central reports whether the less common ways take part at this point, too.
func (p point) central() bool { return p.postgres() && p.ordered() }

// points returns the points of a server. SQLite has one writer at a time.
func points(s *server.Database) (all []point) {
	connections := map[sqladapter.Dialect][]int{
		sqladapter.Postgres: {1, 8, 32}, sqladapter.MySQL: {8}, sqladapter.SQLite: {1},
	}[s.Dialect]
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
	add := func(name string, size int, do work.Batch) *harness.Side {
		s.Sides = append(s.Sides, harness.Side{Name: name,
			Run: work.InBatches(p.connections, size, do), MinKeys: p.connections * size})
		return &s.Sides[len(s.Sides)-1]
	}
	add(effectSide, p.batch, g.effectAlone)
	add(markSide, p.batch, g.marking(g.marks))
	add(bothSide, p.batch, g.both())
	add(fenceSide, p.batch, g.fenced(p.connections))
	add(oneByOneSide, p.batch, g.oneByOne())
	add(handEachSide, 1, g.handEach)
	if p.ordered() {
		v7 := *g
		v7.marks = g.newMarks(ctx, g.name+"_v7", func(c *sqladapter.Config) {
			c.IDTime = sqladapter.UUIDv7
		})
		add(risingSide, p.batch, v7.marking(v7.marks)).Prepare = rising
		add(risingBoth, p.batch, v7.both()).Prepare = rising
	}
	p.compare(s)
	if !p.central() {
		return
	}
	add(doEachSide, 1, g.doEach)
	add(atOnceSide, p.batch, g.effectAtOnce)
	add(handBatchSide, p.batch, g.handBatch)
	add(repeatedSide, p.batch, g.both()).Prepare = g.duplicates(20_000)
	n := g.native(ctx, s, p.connections)
	add(nativeEffectSide, p.batch, n.effectAlone)
	add(nativeBothSide, p.batch, n.both)
	add(nativeHandSide, p.batch, n.handBatch)
}

// compare adds the rows and their goals. A row without a goal is only for information.
func (p point) compare(s *harness.Setup) {
	cpu := func(side, against string, goal harness.Goal) {
		s.Compare(side, against).Called(p.title() + ", CPU of client and server").
			In(harness.CPUMicros).Wants(goal)
	}
	const (
		rising   = "<= 0.75x (stretch 0.6x)"
		asByHand = "<= 1.05x (stretch 1x)"
		ceiling  = ">= 0.45x (stretch 0.55x)"
	)
	here := func(g harness.Goal) harness.Goal { return harness.When(p.postgres(), g) }
	s.Compare(bothSide, effectSide).Wants(here(ceiling))
	s.Compare(bothSide, effectSide).As("the additive ideal, 1/(1/effect + 1/record)").
		Wants(here(">= 0.95x (stretch 1x)")).And = markSide
	s.Compare(bothSide, handEachSide).Wants(p.perMessage())
	s.Compare(bothSide, oneByOneSide)
	s.Compare(fenceSide, effectSide).Wants(here(">= 0.9x (stretch 1x)"))
	if p.ordered() {
		cpu(risingSide, markSide, rising)
		cpu(risingBoth, bothSide, rising)
	}
	if !p.central() {
		return
	}
	s.Compare(repeatedSide, bothSide)
	s.Compare(doEachSide, handEachSide)
	s.Compare(atOnceSide, effectSide)
	s.Compare(bothSide, handBatchSide)
	cpu(bothSide, handBatchSide, asByHand)
	s.Compare(nativeBothSide, nativeEffectSide).Wants(ceiling)
	s.Compare(nativeBothSide, bothSide).As("the same through database/sql")
	s.Compare(nativeBothSide, nativeHandSide)
	cpu(nativeBothSide, nativeHandSide, asByHand)
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

func (e *env) size(all *harness.Groups, s *server.Database) {
	title, n, goal := s.Name+", bytes per key", e.fill/4, harness.Goal("")
	if s.Dialect == sqladapter.Postgres {
		n, goal = e.fill, "<= 101 B (stretch 80 B)"
	}
	all.Add("bytes per key", n, title, func(ctx context.Context, setup *harness.Setup) {
		g := open(ctx, setup, s, 4)
		bytes := func() (total float64) {
			must.Do(g.db.QueryRowContext(ctx, g.statement("size", g.name)).Scan(&total))
			return total
		}
		before := bytes()
		g.fill(ctx, g.marks, n)
		setup.Figure(fmt.Sprintf("%s, table and indexes, %d keys in batches of %d", title, n,
			typical), s.Name, (bytes()-before)/float64(n), "B/key").Wants(goal)
	})
}

const (
	deleteSide = "DeleteExpired, 1000 at once"
	dropSide   = "Rotate, which drops a generation"
	// atOnce is the limit that the documentation of DeleteExpired proposes. It is also the depth
	// that MySQL and MariaDB allow a query.
	atOnce = 1000
)

// age inserts n marks, whose times are a millisecond apart.
func (g *ground) age(ctx context.Context, table string, n int, from time.Time) {
	insert := g.statement("aged", table)
	for done := 0; done < n; done += atOnce {
		must.Get(g.db.ExecContext(ctx, insert, min(atOnce, n-done), from.UnixMilli()+int64(done)))
	}
}

// deletion adds the workload that removes expired marks while other marks stay.
func (e *env) deletion(all *harness.Groups, s *server.Database) {
	name := s.Name + ", retention"
	all.Add("retention", e.live, name, func(ctx context.Context, setup *harness.Setup) {
		g := open(ctx, setup, s, 4)
		setup.MinKeys, setup.MaxKeys = e.live, e.live
		add := func(side string, prepare, run harness.Run, goal harness.Goal) {
			setup.Prepared(side, prepare, run)
			setup.Compare(side, "").Called(name + ", time per row").In(harness.Micros)
			if s.CPU() != nil {
				setup.Compare(side, "").Called(name + ", server CPU per row").
					In(harness.ServerMicros).Wants(goal)
			}
		}
		add(deleteSide, func(ctx context.Context, t *harness.Timing) {
			g.age(ctx, g.name, len(t.Keys), time.Now().Add(-3*window))
			g.vacuum(ctx, g.name)
		}, func(ctx context.Context, t *harness.Timing) {
			gone := g.deleteExpired(ctx, g.marks, g.name)
			must.True(gone == len(t.Keys), "sqlbench: %d marks were deleted, not %d", gone,
				len(t.Keys))
		}, "")
		if s.Dialect == sqladapter.Postgres {
			// Besides the open generation there is a sealed, full one, which the next rotation
			// drops.
			generations := g.inGenerations(ctx, g.name+"_gens")
			g.fill(ctx, generations, e.live)
			g.seal(ctx, generations)
			add(dropSide, func(ctx context.Context, t *harness.Timing) {
				g.fill(ctx, generations, len(t.Keys))
			}, func(ctx context.Context, _ *harness.Timing) { g.seal(ctx, generations) },
				"<= 0.1 us")
		}
		g.age(ctx, g.name, e.live, time.Now())
	})
}

// vacuum does what autovacuum would.
func (g *ground) vacuum(ctx context.Context, table string) {
	if g.server.Dialect == sqladapter.Postgres {
		must.Get(g.db.ExecContext(ctx, `VACUUM (ANALYZE) `+table))
	}
}

// deleteExpired walks over the whole table, as calls during a quarter of a window would.
func (g *ground) deleteExpired(ctx context.Context, m *sqladapter.Ledger,
	table string) (total int) {
	if g.server.Dialect != sqladapter.SQLite {
		must.Get(g.db.ExecContext(ctx, `UPDATE `+table+`_meta SET walk_begun_ms = 1`))
	}
	for {
		n := must.Get(m.DeleteExpired(ctx, g.db, atOnce))
		total += int(n)
		if n < atOnce {
			return total
		}
	}
}

// shortest is a window that has passed as soon as marks are made. So the benchmark measures the
// rotation, and not the wait for it.
const shortest = time.Millisecond

// inGenerations makes a Ledger whose marks are dropped together with their table.
func (g *ground) inGenerations(ctx context.Context, table string) *sqladapter.Ledger {
	return g.newMarks(ctx, table, func(c *sqladapter.Config) {
		c.Window, c.Retention = shortest, sqladapter.Generations
	})
}

func (g *ground) seal(ctx context.Context, m *sqladapter.Ledger) {
	must.True(must.Get(m.Rotate(ctx, g.db)),
		"sqlbench: a generation that is older than %v was not sealed", shortest)
}

const (
	turnedSide = "record in one table, after many windows"
	freshSide  = "record in one table, after the first"
	rotated    = "record in generations, after many windows"
	first      = "record in generations, after the first"

	// parts is how many parts a window has. After each of them, expired marks are deleted, and the
	// table is vacuumed as autovacuum would do by then.
	parts = 10
)

// turnover adds the workload that compares an insert into a table whose marks have all been
// replaced many times with an insert into a table in its first window. It also compares the sizes
// of the tables.
func (e *env) turnover(all *harness.Groups, s *server.Database) {
	name := fmt.Sprintf("%s, %d windows of %d marks", s.Name, e.windows, e.live)
	all.Add("turnover", e.windows, name, func(ctx context.Context, setup *harness.Setup) {
		g := open(ctx, setup, s, typicalFor)
		setup.MaxKeys = max(e.live/5, typicalFor*typical)
		perMark := map[string]float64{}
		// Each table has the marks of one window. With generations, the marks are in the sealed
		// generation, and the open one is empty.
		add := func(side, table string, windows int,
			age func(context.Context, *ground, string, int) (*sqladapter.Ledger, float64)) {
			marks, bytes := age(ctx, g, g.name+table, windows)
			perMark[side] = bytes
			setup.Sides = append(setup.Sides, harness.Side{Name: side,
				MinKeys: typicalFor * typical,
				Run:     work.InBatches(typicalFor, typical, g.marking(marks))})
		}
		add(turnedSide, "_turned", e.windows, e.byDeletes)
		add(freshSide, "_fresh", 1, e.byDeletes)
		add(rotated, "_rotated", e.windows, e.byGenerations)
		add(first, "_first", 1, e.byGenerations)
		setup.Compare(turnedSide, freshSide)
		setup.Compare(rotated, first)
		setup.Compare(rotated, turnedSide)
		setup.Compare(first, freshSide)
		// growth compares the size of two tables with the same number of marks.
		growth := func(old, young string) *harness.Row {
			return setup.Figure(name+", bytes per mark", old, perMark[old], "B/key").
				Next(young, perMark[young])
		}
		growth(turnedSide, freshSide).Wants("<= 1.15x")
		growth(rotated, first).Wants("<= 1.05x")
	})
}

// byDeletes lets windows pass by writing later times into the marks, because ages count from the
// newest mark. It returns the bytes for each remaining mark.
func (e *env) byDeletes(ctx context.Context, g *ground, table string,
	windows int) (*sqladapter.Ledger, float64) {
	m := g.newMarks(ctx, table)
	began := time.Now().Add(-window * time.Duration(windows+1))
	for part := range parts * windows {
		g.age(ctx, table, e.live/parts, began.Add(window/parts*time.Duration(part)))
		g.deleteExpired(ctx, m, table)
		g.vacuum(ctx, table)
	}
	return m, g.perMark(ctx, "size", table)
}

func (e *env) byGenerations(ctx context.Context, g *ground, table string,
	windows int) (*sqladapter.Ledger, float64) {
	m := g.inGenerations(ctx, table)
	for range windows {
		g.fill(ctx, m, e.live)
		g.seal(ctx, m)
	}
	return m, g.perMark(ctx, "size of generations", table)
}

func (g *ground) perMark(ctx context.Context, size, table string) float64 {
	var bytes, count float64
	must.Do(g.db.QueryRowContext(ctx, `SELECT (`+g.statement(size, table)+
		`), (SELECT count(*) FROM `+table+`)`).Scan(&bytes, &count))
	must.True(count > 0, "sqlbench: %s is empty", table)
	return bytes / count
}
