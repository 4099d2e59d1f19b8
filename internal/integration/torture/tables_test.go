package torture_test

import (
	"context"
	"database/sql"
	"strings"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// migrate makes the tables of a run, and drops them when the test ends.
func (c *conductor) migrate(e engine) {
	c.t.Helper()
	db := c.open(e)
	var version string
	c.must(db.QueryRowContext(c.t.Context(), e.version).Scan(&version))
	c.versions[e.name], _, _ = strings.Cut(version, " ")
	marks, err := sqladapter.New(sqladapter.Config{Dialect: e.dialect, Namespace: namespace,
		Table: c.cfg.Prefix, Window: window})
	c.must(err)
	c.must(marks.Migrate(c.t.Context(), db))
	records, err := sqlstore.New(db,
		sqlstore.Options{Dialect: e.dialect, Table: c.cfg.Prefix + "_claims"})
	c.must(err)
	c.must(records.Migrate(c.t.Context()))
	_, err = db.ExecContext(c.t.Context(),
		"CREATE TABLE "+sinkOf(c.cfg.Prefix)+" (message bigint, child bigint, run bigint)")
	c.must(err)
	c.probes = append(c.probes, func(ctx context.Context) error { // message -1 is nobody's
		_, err := db.ExecContext(ctx,
			"INSERT INTO "+sinkOf(c.cfg.Prefix)+" (message, child, run) VALUES (-1, 0, 0)")
		return err
	})
	c.t.Cleanup(func() {
		ctx := context.WithoutCancel(c.t.Context())
		assert.NoError(c.t, records.Drop(ctx))
		for _, table := range []string{sinkOf(c.cfg.Prefix), c.cfg.Prefix, c.cfg.Prefix + "_meta"} {
			_, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+table)
			assert.NoError(c.t, err)
		}
	})
}

// open connects from the conductor's own process.
func (c *conductor) open(e engine) *sql.DB {
	c.t.Helper()
	cfg := c.cfg
	cfg.Cut = 0
	db, err := e.db(&worker{cfg: &cfg})
	c.must(err)
	c.t.Cleanup(func() { _ = db.Close() })
	return db
}

// sink counts the effects that are committed, by process and run.
func (c *conductor) sink(composition string) map[[2]uint64]int {
	c.t.Helper()
	e := onPostgres
	if compositions[composition].needs&needMariaDB != 0 {
		e = onMariaDB
	}
	rows, err := c.open(e).QueryContext(c.t.Context(),
		"SELECT child, run FROM "+sinkOf(c.cfg.Prefix))
	c.must(err)
	defer func() { _ = rows.Close() }()
	all := map[[2]uint64]int{}
	for rows.Next() {
		var of [2]uint64
		c.must(rows.Scan(&of[0], &of[1]))
		all[of]++
	}
	c.must(rows.Err())
	return all
}
