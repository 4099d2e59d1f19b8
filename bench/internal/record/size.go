package record

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceward/onceward/bench/internal/database"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/sqladapter"
)

// storage has what marks take on disk, and what it takes to be rid of them.
func (e *Env) storage(s *database.Server) []harness.Group {
	bytes := title(s.Dialect) + ", bytes per key"
	groups := []harness.Group{{
		Workload: "bytes per key", Title: bytes, X: float64(e.fill(s)),
		Measure: func(ctx context.Context) ([]harness.Row, error) { return e.bytes(ctx, s, bytes) },
	}, e.deletion(s)}
	if s.Dialect == sqladapter.Postgres {
		groups = append(groups, e.turnover(s))
	}
	return groups
}

// fill is how many marks are made: most where the goal is.
func (e *Env) fill(s *database.Server) int {
	if s.Dialect == sqladapter.Postgres {
		return e.Fill
	}
	return e.Fill / 4
}

// bytes fills a table in batches and looks at its size.
func (e *Env) bytes(ctx context.Context, s *database.Server, name string) (rows []harness.Row, err error) {
	const workers = 4
	g, err := open(ctx, s, workers)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	n := e.fill(s)
	per, err := g.filledSize(ctx, workers, n)
	if err != nil {
		return nil, err
	}
	goal := when(s.Dialect == sqladapter.Postgres, harness.ValueAtMost(101, 80, "B"))
	return []harness.Row{{
		Name: fmt.Sprintf("%s, table and indexes, %d keys in batches of %d", name, n, typical), Value: per, Unit: "B/key", Rounds: 1,
		Goal: goal.String(), OK: goal.Reached(per, 0), Workload: "bytes per key", Side: title(s.Dialect), X: float64(n),
	}}, nil
}

// filledSize marks n keys, and returns the bytes for each.
func (g *ground) filledSize(ctx context.Context, workers, n int) (float64, error) {
	before, err := g.bytesOf(ctx, g.name)
	if err != nil {
		return 0, err
	}
	if err := g.fill(ctx, g.marks, workers, n); err != nil {
		return 0, err
	}
	after, err := g.bytesOf(ctx, g.name)
	return float64(after-before) / float64(n), err
}

// fill marks n fresh keys.
func (g *ground) fill(ctx context.Context, m *sqladapter.Marks, workers, n int) error {
	if g.server.Dialect == sqladapter.SQLite {
		workers = 1
	}
	run := inBatches(workers, typical, func(ctx context.Context, _ int, keys []string) error { return markWith(ctx, g.db, m, keys) })
	return run(ctx, &harness.Timing{Keys: harness.FreshKeys(n)})
}

// size of a table with its indexes. MariaDB tells that of the file, of which the last extents
// may be empty yet; SQLite that of the whole file, in which nothing else grows.
var size = map[sqladapter.Dialect]string{
	sqladapter.Postgres: `SELECT pg_total_relation_size($1::text::regclass)`,
	sqladapter.MySQL:    `SELECT file_size FROM information_schema.innodb_sys_tablespaces WHERE name = concat(database(), '/', ?)`,
	sqladapter.SQLite:   `SELECT ((SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)) * (SELECT page_size FROM pragma_page_size) + 0 * length(?)`,
}

func (g *ground) bytesOf(ctx context.Context, table string) (n int64, err error) {
	if err := g.db.QueryRowContext(ctx, size[g.server.Dialect], table).Scan(&n); err != nil {
		return 0, fmt.Errorf("record: size of %s: %w", table, err)
	}
	return n, nil
}
