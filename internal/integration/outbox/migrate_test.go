package outbox_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
)

// Up, down and up again, with messages in the tables; and by hand from Schema.
func TestMigrate(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		h.insert(t, numbered("a", 0))
		for range 2 { // the second time there is nothing to do
			require.NoError(t, h.box.Migrate(t.Context(), h.db))
		}
		lag, err := h.box.Lag(t.Context(), h.db)
		require.NoError(t, err)
		assert.EqualValues(t, 1, lag.Pending)
		require.NoError(t, h.box.MigrateDown(t.Context(), h.db, 0))
		err = h.box.Check(t.Context(), h.db)
		assert.ErrorContains(t, err, "needs a migration")
		for statement := range strings.SplitSeq(h.box.Schema(), ";\n") {
			if statement = strings.TrimSpace(statement); statement != "" {
				h.exec(t, statement)
			}
		}
		assert.NoError(t, h.box.Check(t.Context(), h.db))
		h.insert(t, numbered("a", 0))
		b := newBroker()
		start(t, h.relay(t, b))
		b.wait(t, 1)
		h.drained(t)
	})
}

// A program looks at the version first, and goes there step by step.
func TestVersions(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		want := func(what string, version int) {
			t.Helper()
			has, err := h.box.Version(t.Context(), h.db)
			require.NoError(t, err, what)
			assert.Equal(t, version, has, what)
		}
		want("made", h.box.Newest())
		require.NoError(t, h.box.MigrateDown(t.Context(), h.db, 0))
		want("undone", 0)
		for _, to := range []int{0, h.box.Newest() + 1} {
			err := h.box.MigrateUp(t.Context(), h.db, to)
			assert.ErrorContains(t, err, "there are versions 1 to")
		}
		want("refused", 0)
		for to := range h.box.Newest() {
			require.NoError(t, h.box.MigrateUp(t.Context(), h.db, to+1))
			want("up", to+1)
		}
		h.insert(t, numbered("a", 0))
		require.NoError(t, h.box.MigrateUp(t.Context(), h.db, 1))
		want("up to less", h.box.Newest())
		lag, err := h.box.Lag(t.Context(), h.db)
		require.NoError(t, err)
		assert.EqualValues(t, 1, lag.Pending)
	})
	var none *outbox.Outbox
	_, err := none.Version(t.Context(), nil)
	assert.Error(t, err)
	assert.Zero(t, none.Newest())
}

// TestMigrateAnothersTable: a table that is not an outbox is refused, and left alone. If it were
// recorded as ours, MigrateDown would drop it.
func TestMigrateAnothersTable(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		for suffix, columns := range map[string]string{
			"_other": "id INTEGER, note INTEGER",
			// an index of ours fits
			"_lookup": "id INTEGER, shard INTEGER, retry_at INTEGER, note INTEGER",
		} {
			table := h.table + suffix
			box, err := outbox.New(outbox.Config{Dialect: e.dialect, Table: table})
			require.NoError(t, err)
			h.exec(t, "CREATE TABLE "+table+" ("+columns+")")
			h.exec(t, "INSERT INTO "+table+" (id, note) VALUES (1, 7)")
			err = box.Migrate(t.Context(), h.db)
			assert.Error(t, err)
			assert.False(t, suffix == "_lookup" && !strings.Contains(err.Error(),
				"is not a table of an outbox"), "Migrate of %s (%s) = %v", table, columns, err)
			assert.NoError(t, box.MigrateDown(t.Context(), h.db, 0))
			var note int
			require.NoError(t, h.db.QueryRowContext(t.Context(),
				"SELECT note FROM "+table).Scan(&note))
			assert.EqualValues(t, 7, note)
			h.exec(t, "DROP TABLE "+table)
			h.exec(t, "DROP TABLE IF EXISTS "+table+"_parked") // MySQL has committed them
			h.exec(t, "DROP TABLE IF EXISTS "+table+"_shards")
		}
	})
}

// A table with a long name, in a schema of its own.
func TestSchema(t *testing.T) {
	h := newHouse(t, postgres())
	schema := servertest.Prefix(t)
	h.exec(t, `CREATE SCHEMA "`+schema+`"`)
	t.Cleanup(func() { h.exec(t, `DROP SCHEMA "`+schema+`" CASCADE`) })
	box, err := outbox.New(outbox.Config{Dialect: outbox.Postgres, Schema: schema,
		Table: "Long_" + strings.Repeat("x", 58)})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context(), h.db))
	h.box = box
	b := newBroker()
	b.fail = func(m outbox.Message) error { return errTooLarge }
	parked := make(chan outbox.Parked, 1)
	h.insert(t, numbered("a", 0))
	start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
		c.MaxAttempts = 1
		c.OnPark = func(_ context.Context, p outbox.Parked) { parked <- p }
	}))
	<-parked
	h.drained(t)
}
