package sqlbench

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/sqladapter"
)

const (
	deleteSide = "DeleteExpired, 1000 at once"
	dropSide   = "Rotate, which drops a generation"
	// atOnce is the limit that DeleteExpired's documentation proposes.
	atOnce = 1000
)

// insertAged makes marks as if they had been made a millisecond after each other: how many,
// and when the first, in ms since 1970.
var insertAged = map[sqladapter.Dialect]func(table string) string{
	sqladapter.Postgres: func(table string) string {
		return `INSERT INTO ` + table +
			` (id, stamp) SELECT gen_random_uuid(), ($2::bigint + i) << 20 FROM generate_series(1, $1::bigint) AS i`
	},
	sqladapter.MySQL: func(table string) string {
		return `INSERT INTO ` + table +
			` (id, owner, created_at) WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?)` +
			` SELECT unhex(md5(concat(i, uuid()))), 1, ? + i FROM c`
	},
	sqladapter.SQLite: func(table string) string {
		return `WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?) INSERT INTO ` + table +
			` (id, stamp) SELECT randomblob(16), ? + i << 20 FROM c`
	},
}

// agedAtOnce is how deep MySQL and MariaDB let a query go.
const agedAtOnce = 1000

// age inserts n marks of which the first was made at from.
func (g *ground) age(ctx context.Context, table string, n int, from time.Time) error {
	insert := insertAged[g.server.Dialect](table)
	for done := 0; done < n; done += agedAtOnce {
		if _, err := g.db.ExecContext(ctx, insert, min(agedAtOnce, n-done),
			from.UnixMilli()+int64(done)); err != nil {
			return fmt.Errorf("sqlbench: aged marks: %w", err)
		}
	}
	return nil
}

// deletion is what it costs to be rid of an expired mark, next to marks that stay.
func (e *env) deletion(s *server.Database) harness.Group {
	name := s.Name() + ", retention"
	return harness.Group{Workload: "retention", X: float64(e.live), Title: name,
		Open: func(ctx context.Context, setup *harness.Setup) error {
			g, err := open(ctx, setup, s, 4)
			if err != nil {
				return err
			}
			setup.MinKeys, setup.MaxKeys = e.live, e.live
			add := func(side string, prepare, run harness.Run, goal harness.Goal) {
				setup.Sides = append(setup.Sides,
					harness.Side{Name: side, Prepare: prepare, Run: run})
				setup.Pair(harness.Pair{Name: name + ", time per row", Side: side,
					Metric: harness.Micros})
				if s.CPU() != nil {
					setup.Pair(harness.Pair{Name: name + ", server CPU per row", Side: side,
						Metric: harness.ServerMicros, Goal: goal})
				}
			}
			add(deleteSide, g.expired, g.deleteAll, harness.Goal{})
			if s.Dialect == sqladapter.Postgres {
				generations, err := g.inGenerations(ctx, g.name+"_gens")
				if err != nil {
					return err
				}
				add(dropSide, g.sealed(generations), g.rotate(generations),
					harness.ValueAtMost(0.1, 0, "us"))
			}
			return g.age(ctx, g.name, e.live, time.Now())
		}}
}

// expired adds marks that may go, and does what autovacuum does.
func (g *ground) expired(ctx context.Context, t *harness.Timing) error {
	if err := g.age(ctx, g.name, len(t.Keys), time.Now().Add(-3*window)); err != nil {
		return err
	}
	return g.vacuum(ctx, g.name)
}

func (g *ground) vacuum(ctx context.Context, table string) error {
	if g.server.Dialect != sqladapter.Postgres {
		return nil
	}
	_, err := g.db.ExecContext(ctx, `VACUUM (ANALYZE) `+table)
	return err
}

func (g *ground) deleteAll(ctx context.Context, t *harness.Timing) error {
	gone, err := g.deleteExpired(ctx, g.marks)
	if err == nil && gone != len(t.Keys) {
		err = fmt.Errorf("sqlbench: %d marks were deleted, not %d", gone, len(t.Keys))
	}
	return err
}

// deleteExpired calls until nothing is left.
func (g *ground) deleteExpired(ctx context.Context, m *sqladapter.Marks) (total int, err error) {
	for {
		n, err := m.DeleteExpired(ctx, g.db, atOnce)
		total += int(n)
		if err != nil || n < atOnce {
			return total, err
		}
	}
}

// shortest is a window that has passed as soon as marks are made: what is measured is the
// turn, not the wait for it.
const shortest = time.Millisecond

// inGenerations makes marks that go with their table.
func (g *ground) inGenerations(ctx context.Context, table string) (*sqladapter.Marks, error) {
	return g.newMarks(ctx, table, func(c *sqladapter.Config) {
		c.Window, c.Retention = shortest, sqladapter.Generations
	})
}

// sealed fills the open generation behind one that is full and sealed: the next turn drops
// that one.
func (g *ground) sealed(m *sqladapter.Marks) harness.Run {
	turned := false
	return func(ctx context.Context, t *harness.Timing) error {
		if !turned {
			turned = true
			if err := g.nextGeneration(ctx, m, len(t.Keys)); err != nil {
				return err
			}
		}
		return g.fill(ctx, m, 4, len(t.Keys))
	}
}

func (g *ground) rotate(m *sqladapter.Marks) harness.Run {
	return func(ctx context.Context, _ *harness.Timing) error { return g.seal(ctx, m) }
}

func (g *ground) seal(ctx context.Context, m *sqladapter.Marks) error {
	sealed, err := m.Rotate(ctx, g.db)
	if err == nil && !sealed {
		err = fmt.Errorf("sqlbench: a generation that is older than %v was not sealed", shortest)
	}
	return err
}

// nextGeneration fills the open generation and seals it.
func (g *ground) nextGeneration(ctx context.Context, m *sqladapter.Marks, n int) error {
	if err := g.fill(ctx, m, 4, n); err != nil {
		return err
	}
	return g.seal(ctx, m)
}
