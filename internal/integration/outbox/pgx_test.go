package outbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// A transaction of pgx itself: committed, its messages come; rolled back, they do not.
func TestNativePgx(t *testing.T) {
	h := newHouse(t, postgres())
	conn, err := pgx.Connect(t.Context(), h.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for _, key := range []string{"committed", "gone"} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := h.box.InsertTx(t.Context(), pgxv5.Wrap(tx), numbered(key, 0),
			outbox.Message{ID: key + " without a key/0", Topic: "t"}); err != nil {
			t.Fatal(err)
		}
		end := tx.Rollback
		if key == "committed" {
			end = tx.Commit
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b := newBroker()
	start(t, h.relay(t, b))
	h.drained(t)
	got, _ := b.got()
	if tl := judge(got, map[string]int{"committed": 1,
		"committed without a key": 1}); tl != (tally{}) || len(got) != 2 {
		t.Errorf("%+v of %d", tl, len(got))
	}
}
