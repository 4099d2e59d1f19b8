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
		if err := h.box.Check(t.Context(), h.db); err == nil || !strings.Contains(err.Error(), "needs a migration") {
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

// A table with a long name, in a schema of its own.
func TestSchema(t *testing.T) {
	h := newHouse(t, postgres())
	schema := servertest.Prefix(t)
	h.exec(t, `CREATE SCHEMA "`+schema+`"`)
	t.Cleanup(func() { h.exec(t, `DROP SCHEMA "`+schema+`" CASCADE`) })
	box, err := outbox.New(outbox.Config{Dialect: outbox.Postgres, Schema: schema, Table: "Long_" + strings.Repeat("x", 58)})
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
