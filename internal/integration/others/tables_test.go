package others_test

import (
	"context"
	"database/sql"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
)

func (c *conductor) pool() *sql.DB {
	c.t.Helper()
	db, err := sql.Open("pgx", c.cfg.Postgres)
	c.must(err)
	c.t.Cleanup(func() { _ = db.Close() })
	return db
}

// makeTables makes those of the rivals in PostgreSQL, and has them dropped.
func (c *conductor) makeTables() {
	c.t.Helper()
	db, prefix := c.pool(), c.cfg.Prefix
	marks, err := marksOf(prefix)
	c.must(err)
	c.must(marks.Migrate(c.t.Context(), db))
	for _, made := range []string{
		"CREATE TABLE " + prefix + "_sink (message bigint)",
		"CREATE TABLE " + prefix +
			"_idempotency (key text PRIMARY KEY, status text, response_status int, response_body text, created_at timestamptz)",
	} {
		_, err := db.ExecContext(c.t.Context(), made)
		c.must(err)
	}
	c.t.Cleanup(func() {
		for _, table := range []string{prefix, prefix + "_meta", prefix + "_sink",
			prefix + "_idempotency"} {
			_, err := db.ExecContext(context.WithoutCancel(c.t.Context()),
				"DROP TABLE IF EXISTS "+table)
			assert.NoError(c.t, err)
		}
	})
}

// rows counts the effects that are committed, by message.
func (c *conductor) rows() map[uint32]int {
	c.t.Helper()
	found, err := c.pool().QueryContext(c.t.Context(), "SELECT message FROM "+c.cfg.Prefix+"_sink")
	c.must(err)
	defer func() { _ = found.Close() }()
	all := map[uint32]int{}
	for found.Next() {
		var m uint32
		c.must(found.Scan(&m))
		all[m]++
	}
	c.must(found.Err())
	return all
}
