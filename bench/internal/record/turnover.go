package record

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/database"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/sqladapter"
)

const (
	turnedSide = "record in one table, after many windows"
	freshSide  = "record in one table, after the first"
	rotated    = "record in generations, after many windows"
	first      = "record in generations, after the first"

	// parts of a window: after each, what has expired is deleted, and vacuumed as autovacuum
	// would by then.
	parts = 10
)

// turnover is what an insert costs in a table whose marks have all been replaced many times,
// beside one in its first window, and how much larger it is.
func (e *Env) turnover(s *database.Server) harness.Group {
	name := fmt.Sprintf("%s, %d windows of %d marks", title(s.Dialect), e.Turns, e.Live)
	return harness.Group{Workload: "turnover", X: float64(e.Turns), Title: name, Open: func(ctx context.Context) (harness.Setup, error) {
		g, err := open(ctx, s, typicalFor)
		if err != nil {
			return harness.Setup{}, err
		}
		setup := harness.Setup{Close: func() { _ = g.close() }, MaxKeys: max(e.Live/5, typicalFor*typical)}
		tables, err := e.turned(ctx, g)
		if err != nil {
			setup.Close()
			return harness.Setup{}, err
		}
		for _, t := range tables {
			setup.Sides = append(setup.Sides, harness.Side{
				Name: t.side, MinKeys: typicalFor * typical,
				Run: inBatches(typicalFor, typical, func(ctx context.Context, _ int, keys []string) error { return markWith(ctx, g.db, t.marks, keys) }),
			})
		}
		setup.Pairs = []harness.Pair{
			{Name: name, Side: turnedSide, Against: freshSide},
			{Name: name, Side: rotated, Against: first},
			{Name: name, Side: rotated, Against: turnedSide},
			{Name: name, Side: first, Against: freshSide},
		}
		setup.Rows = []harness.Row{
			e.growth(name, tables[0], tables[1], harness.AtMost(1.15, 0)), e.growth(name, tables[2], tables[3], harness.AtMost(1.05, 0)),
		}
		return setup, nil
	}}
}

// growth is how much larger one table is than another with as many marks.
func (e *Env) growth(name string, old, young turned, goal harness.Goal) harness.Row {
	ratio := old.bytes / young.bytes
	return harness.Row{
		Name: name + ", bytes per mark", Value: old.bytes, Unit: "B/key", Against: young.side, AgainstValue: young.bytes, Ratio: ratio,
		Spread: [2]float64{ratio, ratio}, Rounds: 1, Goal: goal.String(), OK: goal.Reached(old.bytes, ratio), Workload: "turnover", Side: old.side, X: float64(e.Turns),
	}
}

// turned is a table with a past.
type turned struct {
	side  string
	marks *sqladapter.Marks
	bytes float64 // for each mark that is there
}

// turned makes the tables, each with the marks of one window: of generations they are in the
// sealed one, and the open one is empty.
func (e *Env) turned(ctx context.Context, g *ground) ([]turned, error) {
	var all []turned
	for _, t := range []struct {
		side, table string
		windows     int
		make        func(ctx context.Context, g *ground, table string, windows int) (turned, error)
	}{
		{turnedSide, "_turned", e.Turns, e.byDeletes}, {freshSide, "_fresh", 1, e.byDeletes},
		{rotated, "_rotated", e.Turns, e.byGenerations}, {first, "_first", 1, e.byGenerations},
	} {
		made, err := t.make(ctx, g, g.name+t.table, t.windows)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.side, err)
		}
		made.side = t.side
		all = append(all, made)
	}
	return all, nil
}

// byDeletes lets windows pass, in the time that the marks tell: ages are counted from the
// newest of them.
func (e *Env) byDeletes(ctx context.Context, g *ground, table string, windows int) (turned, error) {
	m, err := g.newMarks(ctx, table)
	if err != nil {
		return turned{}, err
	}
	began := time.Now().Add(-window * time.Duration(windows+1))
	for part := range parts * windows {
		if err := g.age(ctx, table, e.Live/parts, began.Add(window/parts*time.Duration(part))); err != nil {
			return turned{}, err
		}
		if _, err := g.deleteExpired(ctx, m); err != nil {
			return turned{}, err
		}
		if err := g.vacuum(ctx, table); err != nil {
			return turned{}, err
		}
	}
	return e.measured(ctx, g, m, `SELECT pg_total_relation_size($1::text::regclass), (SELECT count(*) FROM `+table+`)`, table)
}

// byGenerations ends with a sealed generation, and marks as many in the open one.
func (e *Env) byGenerations(ctx context.Context, g *ground, table string, windows int) (turned, error) {
	m, err := g.inGenerations(ctx, table)
	if err != nil {
		return turned{}, err
	}
	for range windows {
		if err := g.turn(ctx, m, e.Live); err != nil {
			return turned{}, err
		}
	}
	sum := `SELECT (SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname LIKE $1 || '%'), (SELECT count(*) FROM ` + table + `)`
	return e.measured(ctx, g, m, sum, table)
}

func (e *Env) measured(ctx context.Context, g *ground, m *sqladapter.Marks, ask, table string) (turned, error) {
	var bytes, count float64
	if err := g.db.QueryRowContext(ctx, ask, table).Scan(&bytes, &count); err != nil {
		return turned{}, err
	}
	if count == 0 {
		return turned{}, fmt.Errorf("record: %s is empty", table)
	}
	return turned{marks: m, bytes: bytes / count}, nil
}
