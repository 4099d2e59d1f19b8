package sqlbench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/sqladapter"
)

// ground is what the sides of a workload share: a pool, and new tables with names of their
// own, which go when it is closed.
type ground struct {
	server    *server.Database
	db        *sql.DB
	isolation sql.IsolationLevel
	name      string // that tables begin with
	effect    effect
	marks     *sqladapter.Marks
	fence     *sqladapter.Fence
}

// window of the marks. A round trip of the sweeper counts in steps of 1024 ms.
const window = time.Hour

// open makes the tables for the time of a setup. Of MySQL the least level is taken that is right,
// as its documentation says; elsewhere it is the default.
func open(ctx context.Context, setup *harness.Setup, s *server.Database, connections int) *ground {
	name := "bench" + harness.Fresh()[:8]
	g := &ground{server: s, db: s.Pool(connections), name: name,
		effect: effect{s.Dialect, name + "_effect"}}
	setup.Defer(g.close)
	if s.Dialect == sqladapter.MySQL {
		g.isolation = sql.LevelReadCommitted
	}
	must.Get(g.db.ExecContext(ctx, g.effect.create()))
	g.marks = g.newMarks(ctx, g.name)
	g.fence = must.Get(sqladapter.NewFence(sqladapter.FenceConfig{Dialect: s.Dialect,
		Group: "bench", Table: g.name + "_fence", Isolation: g.isolation}))
	must.Do(g.fence.Migrate(ctx, g.db))
	return g
}

func (g *ground) newMarks(ctx context.Context, table string,
	change ...func(*sqladapter.Config)) *sqladapter.Marks {
	cfg := sqladapter.Config{Dialect: g.server.Dialect, Namespace: "bench", Table: table,
		Window: window, Isolation: g.isolation}
	for _, change := range change {
		change(&cfg)
	}
	m := must.Get(sqladapter.New(cfg))
	must.Do(m.Migrate(ctx, g.db))
	return m
}

// close drops the tables, also when the run was interrupted.
func (g *ground) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var failed error
	if g.fence != nil {
		failed = g.fence.Migrations().To(ctx, g.db, 0)
	}
	return errors.Join(failed, must.Try(func() { g.drop(ctx) }), g.db.Close())
}

// listTables that begin with a name.
var listTables = map[sqladapter.Dialect]string{
	sqladapter.Postgres: `SELECT table_name FROM information_schema.tables WHERE ` +
		`table_schema = current_schema() AND table_type = 'BASE TABLE' AND table_name LIKE $1`,
	sqladapter.MySQL: `SELECT table_name FROM information_schema.tables WHERE ` +
		`table_schema = database() AND table_name LIKE ?`,
	sqladapter.SQLite: `SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE ?`,
}

// drop what is there by name: generations have tables that only they know.
func (g *ground) drop(ctx context.Context) {
	cascade := "" // to the view that generations have
	if g.server.Dialect == sqladapter.Postgres {
		cascade = " CASCADE"
	}
	for _, table := range g.tables(ctx) {
		must.Get(g.db.ExecContext(ctx, `DROP TABLE `+table+cascade))
	}
}

func (g *ground) tables(ctx context.Context) []string {
	return selected(ctx, g.db, listTables[g.server.Dialect], g.name+"%",
		func(table string) string { return table })
}

// selected are the values of a query's only column.
func selected[V, T any](ctx context.Context, q querier, query string, arg any,
	of func(V) T) (all []T) {
	rows, err := q.QueryContext(ctx, query, arg)
	must.Do(err)
	defer func() { _ = rows.Close() }()
	all = make([]T, 0, typical)
	for rows.Next() {
		var value V
		must.Do(rows.Scan(&value))
		all = append(all, of(value))
	}
	must.Do(rows.Err())
	return all
}

// size of a table with its indexes. MariaDB has that of the file, of which the last extents
// may be empty yet; SQLite that of the whole file, in which nothing else grows.
var size = map[sqladapter.Dialect]string{
	sqladapter.Postgres: `SELECT pg_total_relation_size($1::text::regclass)`,
	sqladapter.MySQL: `SELECT file_size FROM information_schema.innodb_sys_tablespaces ` +
		`WHERE name = concat(database(), '/', ?)`,
	sqladapter.SQLite: `SELECT ((SELECT page_count FROM pragma_page_count) - ` +
		`(SELECT freelist_count FROM pragma_freelist_count)) * ` +
		`(SELECT page_size FROM pragma_page_size) + 0 * length(?)`,
}

// size is what marks take on disk.
func (e *env) size(s *server.Database) harness.Group {
	title, n := s.Name()+", bytes per key", e.fill/4
	goal := harness.Goal{}
	if s.Dialect == sqladapter.Postgres {
		n, goal = e.fill, harness.ValueAtMost(101, 80, "B")
	}
	return harness.Group{Workload: "bytes per key", Title: title, X: float64(n),
		Open: func(ctx context.Context, setup *harness.Setup) {
			g := open(ctx, setup, s, 4)
			bytes := func() (total float64) {
				must.Do(g.db.QueryRowContext(ctx, size[s.Dialect], g.name).Scan(&total))
				return total
			}
			before := bytes()
			g.fill(ctx, g.marks, n)
			setup.Row(harness.Figure(fmt.Sprintf(
				"%s, table and indexes, %d keys in batches of %d", title, n, typical), s.Name(),
				(bytes()-before)/float64(n), "B/key", goal))
		}}
}
