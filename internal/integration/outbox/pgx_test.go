package outbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// A transaction of pgx itself: committed, its messages come; rolled back, they do not.
func TestNativePgx(t *testing.T) {
	h := newHouse(t, postgres())
	conn, err := pgx.Connect(t.Context(), h.dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for _, key := range []string{"committed", "gone"} {
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.box.InsertTx(t.Context(), pgxv5.Wrap(tx), numbered(key, 0),
			outbox.Message{ID: key + " without a key/0", Topic: "t"}))
		end := tx.Rollback
		if key == "committed" {
			end = tx.Commit
		}
		require.NoError(t, end(t.Context()))
	}
	b := newBroker()
	start(t, h.relay(t, b))
	h.drained(t)
	got, _ := b.got()
	tl := judge(got, map[string]int{"committed": 1,
		"committed without a key": 1})
	assert.Equal(t, tally{}, tl)
	assert.Len(t, got, 2)
}
