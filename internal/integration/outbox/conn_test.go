package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
)

func (h *house) count(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, h.db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+h.table).Scan(&n))
	return n
}

// Prevents: on a *sql.Conn on which nobody has begun a transaction the message is committed by
// itself, and published even if the effect is rolled back.
func TestInsertTxOnAConnectionWithoutTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		conn, err := h.db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { assert.NoError(t, conn.Close()) }()
		message := outbox.Message{Topic: "t", Payload: []byte("p")}
		var input *outbox.InputError
		require.ErrorAs(t, h.box.InsertTx(t.Context(), conn, message), &input)
		assert.Equal(t, "tx", input.Field)
		assert.Zero(t, h.count(t))
		for want, end := range []string{`ROLLBACK`, `COMMIT`} {
			_, err = conn.ExecContext(t.Context(), `BEGIN`)
			require.NoError(t, err)
			require.NoError(t, h.box.InsertTx(t.Context(), conn, message))
			_, err = conn.ExecContext(t.Context(), end)
			require.NoError(t, err)
			assert.Equal(t, want, h.count(t), "after "+end)
		}
	})
}
