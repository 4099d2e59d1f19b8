package sqlbench

import (
	"context"
	"fmt"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/sqladapter"
)

// storage has what marks take on disk, and what it takes to be rid of them.
func (e *env) storage(s *server.Database) []harness.Group {
	title, postgres := s.Name()+", bytes per key", s.Dialect == sqladapter.Postgres
	n := e.fill / 4
	if postgres { // which has a goal
		n = e.fill
	}
	groups := []harness.Group{{Workload: "bytes per key", Title: title, X: float64(n),
		Open: func(ctx context.Context, setup *harness.Setup) error {
			const workers = 4
			g, err := open(ctx, setup, s, workers)
			if err != nil {
				return err
			}
			per, err := g.filledSize(ctx, workers, n)
			name := fmt.Sprintf("%s, table and indexes, %d keys in batches of %d", title,
				n, typical)
			setup.Rows = []harness.Row{harness.Figure(name, s.Name(), per, "B/key",
				harness.When(postgres, harness.ValueAtMost(101, 80, "B")))}
			return err
		}}, e.deletion(s)}
	if postgres {
		groups = append(groups, e.turnover(s))
	}
	return groups
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
	run := work.InBatches(workers, typical, func(ctx context.Context, _ int, keys []string) error {
		return markWith(ctx, g.db, m, keys)
	})
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
		return 0, fmt.Errorf("sqlbench: size of %s: %w", table, err)
	}
	return n, nil
}
