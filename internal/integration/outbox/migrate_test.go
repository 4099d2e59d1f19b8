package outbox_test

import (
	"context"
	"strings"
	"testing"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
)

// Up, down and up again, with messages in the tables; and by hand from Schema.
func TestMigrate(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		h.insert(t, numbered("a", 0))
		for range 2 { // the second time there is nothing to do
			if err := h.box.Migrate(t.Context(), h.db); err != nil {
				t.Fatal(err)
			}
		}
		if lag, err := h.box.Lag(t.Context(), h.db); err != nil || lag.Pending != 1 {
			t.Errorf("after migrating again: %+v, %v", lag, err)
		}
		if err := h.box.MigrateDown(t.Context(), h.db, 0); err != nil {
			t.Fatal(err)
		}
		if err := h.box.Check(t.Context(), h.db); err == nil ||
			!strings.Contains(err.Error(), "needs a migration") {
			t.Errorf("Check of nothing = %v", err)
		}
		for statement := range strings.SplitSeq(h.box.Schema(), ";\n") {
			if statement = strings.TrimSpace(statement); statement != "" {
				h.exec(t, statement)
			}
		}
		if err := h.box.Check(t.Context(), h.db); err != nil {
			t.Errorf("Check of what was made by hand = %v", err)
		}
		h.insert(t, numbered("a", 0))
		b := newBroker()
		start(t, h.relay(t, b))
		b.wait(t, 1)
		h.drained(t)
	})
}

// Who looks at the version first, and goes there step by step.
func TestVersions(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		want := func(what string, version int) {
			t.Helper()
			if has, err := h.box.Version(t.Context(), h.db); err != nil || has != version {
				t.Errorf("%s: version %d, %v; want %d", what, has, err, version)
			}
		}
		want("made", h.box.Newest())
		if err := h.box.MigrateDown(t.Context(), h.db, 0); err != nil {
			t.Fatal(err)
		}
		want("undone", 0)
		for _, to := range []int{0, h.box.Newest() + 1} {
			if err := h.box.MigrateUp(t.Context(), h.db, to); err == nil ||
				!strings.Contains(err.Error(), "there are versions 1 to") {
				t.Errorf("up to %d: %v", to, err)
			}
		}
		want("refused", 0)
		for to := range h.box.Newest() {
			if err := h.box.MigrateUp(t.Context(), h.db, to+1); err != nil {
				t.Fatal(err)
			}
			want("up", to+1)
		}
		h.insert(t, numbered("a", 0))
		if err := h.box.MigrateUp(t.Context(), h.db, 1); err != nil {
			t.Fatal(err)
		}
		want("up to less", h.box.Newest())
		if lag, err := h.box.Lag(t.Context(), h.db); err != nil || lag.Pending != 1 {
			t.Errorf("%+v, %v", lag, err)
		}
	})
	var none *outbox.Outbox
	if _, err := none.Version(t.Context(), nil); err == nil || none.Newest() != 0 {
		t.Errorf("of nil: %d, %v", none.Newest(), err)
	}
}

// TestMigrateAnothersTable: a table that is no outbox is refused, and left alone. On record as
// ours it would be dropped on the way down.
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
			if err != nil {
				t.Fatal(err)
			}
			h.exec(t, "CREATE TABLE "+table+" ("+columns+")")
			h.exec(t, "INSERT INTO "+table+" (id, note) VALUES (1, 7)")
			if err := box.Migrate(t.Context(), h.db); err == nil ||
				suffix == "_lookup" && !strings.Contains(err.Error(),
					"is not a table of an outbox") {
				t.Errorf("Migrate of %s (%s) = %v", table, columns, err)
			}
			if err := box.MigrateDown(t.Context(), h.db, 0); err != nil {
				t.Error(err)
			}
			var note int
			if err := h.db.QueryRowContext(t.Context(),
				"SELECT note FROM "+table).Scan(&note); err != nil || note != 7 {
				t.Errorf("what was in %s: %d, %v", table, note, err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Migrate(t.Context(), h.db); err != nil {
		t.Fatal(err)
	}
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
