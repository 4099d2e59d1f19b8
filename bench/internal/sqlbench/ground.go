package sqlbench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
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
func open(ctx context.Context, setup *harness.Setup, s *server.Database,
	connections int) (*ground, error) {
	db, err := s.Pool(connections)
	if err != nil {
		return nil, err
	}
	g := &ground{server: s, db: db, name: "bench" + harness.Fresh()[:8]}
	setup.Defer(g.close)
	if s.Dialect == sqladapter.MySQL {
		g.isolation = sql.LevelReadCommitted
	}
	g.effect = effect{s.Dialect, g.name + "_effect"}
	return g, g.create(ctx)
}

func (g *ground) create(ctx context.Context) (err error) {
	if _, err := g.db.ExecContext(ctx, g.effect.create()); err != nil {
		return fmt.Errorf("sqlbench: %w", err)
	}
	if g.marks, err = g.newMarks(ctx, g.name); err != nil {
		return err
	}
	g.fence, err = sqladapter.NewFence(sqladapter.FenceConfig{Dialect: g.server.Dialect,
		Group: "bench", Table: g.fenceTable(), Isolation: g.isolation})
	if err != nil {
		return err
	}
	return g.fence.Migrate(ctx, g.db)
}

func (g *ground) fenceTable() string { return g.name + "_fence" }

func (g *ground) newMarks(ctx context.Context, table string,
	change ...func(*sqladapter.Config)) (*sqladapter.Marks, error) {
	cfg := sqladapter.Config{Dialect: g.server.Dialect, Namespace: "bench", Table: table,
		Window: window, Isolation: g.isolation}
	for _, change := range change {
		change(&cfg)
	}
	m, err := sqladapter.New(cfg)
	if err != nil {
		return nil, err
	}
	return m, m.Migrate(ctx, g.db)
}

// close drops the tables, also when the run was interrupted.
func (g *ground) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var failed error
	if g.fence != nil {
		failed = g.fence.Migrations().To(ctx, g.db, 0)
	}
	return errors.Join(failed, g.drop(ctx), g.db.Close())
}

// listTables that begin with a name.
var listTables = map[sqladapter.Dialect]string{
	sqladapter.Postgres: `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' AND table_name LIKE $1`,
	sqladapter.MySQL:    `SELECT table_name FROM information_schema.tables WHERE table_schema = database() AND table_name LIKE ?`,
	sqladapter.SQLite:   `SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE ?`,
}

// drop what is there by name: generations have tables that only they know.
func (g *ground) drop(ctx context.Context) error {
	cascade := "" // to the view that generations have
	if g.server.Dialect == sqladapter.Postgres {
		cascade = " CASCADE"
	}
	tables, err := g.tables(ctx)
	for _, table := range tables {
		_, failed := g.db.ExecContext(ctx, `DROP TABLE `+table+cascade)
		err = errors.Join(err, failed)
	}
	return err
}

func (g *ground) tables(ctx context.Context) (tables []string, err error) {
	rows, err := g.db.QueryContext(ctx, listTables[g.server.Dialect], g.name+"%")
	if err != nil {
		return nil, fmt.Errorf("sqlbench: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return nil, fmt.Errorf("sqlbench: %w", err)
		}
		tables = append(tables, table)
	}
	return tables, rows.Err()
}
