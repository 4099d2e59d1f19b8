package sqlbench

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
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
// next to one in its first window, and how much larger it is.
func (e *env) turnover(s *server.Database) harness.Group {
	name := fmt.Sprintf("%s, %d windows of %d marks", s.Name(), e.windows, e.live)
	return harness.Group{Workload: "turnover", X: float64(e.windows), Title: name,
		Open: func(ctx context.Context, setup *harness.Setup) error {
			g, err := open(ctx, setup, s, typicalFor)
			if err != nil {
				return err
			}
			setup.MaxKeys = max(e.live/5, typicalFor*typical)
			tables, err := e.turned(ctx, g)
			if err != nil {
				return err
			}
			for _, t := range tables {
				setup.Sides = append(setup.Sides, harness.Side{
					Name: t.side, MinKeys: typicalFor * typical,
					Run: work.InBatches(typicalFor, typical,
						func(ctx context.Context, _ int, keys []string) error {
							return markWith(ctx, g.db, t.marks, keys)
						}),
				})
			}
			setup.Pair(harness.Pair{Side: turnedSide, Against: freshSide},
				harness.Pair{Side: rotated, Against: first},
				harness.Pair{Side: rotated, Against: turnedSide},
				harness.Pair{Side: first, Against: freshSide})
			// How much larger one table is than another with as many marks.
			growth := func(old, young turned, goal harness.Goal) harness.Row {
				return harness.Compared(name+", bytes per mark", old.side, old.bytes, "B/key",
					young.side, young.bytes, goal)
			}
			setup.Rows = []harness.Row{growth(tables[0], tables[1], harness.AtMost(1.15, 0)),
				growth(tables[2], tables[3], harness.AtMost(1.05, 0))}
			return nil
		}}
}

// turned is a table with a past.
type turned struct {
	side  string
	marks *sqladapter.Marks
	bytes float64 // for each mark that is there
}

// turned makes the tables, each with the marks of one window: of generations they are in the
// sealed one, and the open one is empty.
func (e *env) turned(ctx context.Context, g *ground) ([]turned, error) {
	var all []turned
	for _, t := range []struct {
		side, table string
		windows     int
		make        func(ctx context.Context, g *ground, table string, windows int) (turned, error)
	}{
		{turnedSide, "_turned", e.windows, e.byDeletes}, {freshSide, "_fresh", 1, e.byDeletes},
		{rotated, "_rotated", e.windows, e.byGenerations}, {first, "_first", 1, e.byGenerations},
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
func (e *env) byDeletes(ctx context.Context, g *ground, table string, windows int) (turned, error) {
	m, err := g.newMarks(ctx, table)
	if err != nil {
		return turned{}, err
	}
	began := time.Now().Add(-window * time.Duration(windows+1))
	for part := range parts * windows {
		if err := g.age(ctx, table, e.live/parts,
			began.Add(window/parts*time.Duration(part))); err != nil {
			return turned{}, err
		}
		if _, err := g.deleteExpired(ctx, m); err != nil {
			return turned{}, err
		}
		if err := g.vacuum(ctx, table); err != nil {
			return turned{}, err
		}
	}
	return e.measured(ctx, g, m,
		`SELECT pg_total_relation_size($1::text::regclass), (SELECT count(*) FROM `+table+`)`,
		table)
}

// byGenerations ends with a sealed generation, and marks as many in the open one.
func (e *env) byGenerations(ctx context.Context, g *ground, table string,
	windows int) (turned, error) {
	m, err := g.inGenerations(ctx, table)
	if err != nil {
		return turned{}, err
	}
	for range windows {
		if err := g.nextGeneration(ctx, m, e.live); err != nil {
			return turned{}, err
		}
	}
	sum := `SELECT (SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname LIKE $1 || '%'), (SELECT count(*) FROM ` + table + `)`
	return e.measured(ctx, g, m, sum, table)
}

func (e *env) measured(ctx context.Context, g *ground, m *sqladapter.Marks, ask,
	table string) (turned, error) {
	var bytes, count float64
	if err := g.db.QueryRowContext(ctx, ask, table).Scan(&bytes, &count); err != nil {
		return turned{}, err
	}
	if count == 0 {
		return turned{}, fmt.Errorf("sqlbench: %s is empty", table)
	}
	return turned{marks: m, bytes: bytes / count}, nil
}
