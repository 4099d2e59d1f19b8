package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// wantNotMigrated checks the error of a call whose table does not exist: it says which one and what
// to do, and is otherwise the database's error.
func wantNotMigrated(t *testing.T, err error, table, call string) {
	t.Helper()
	assert.ErrorContains(t, err, "table "+table+" does not exist: its migrations have not run "+
		"in this schema; call Migrate, or run `onceward migrate`: ", call)
	assert.True(t, sqlerr.NoTable(err), "%s: %v", call, err)
	assert.False(t, sqlerr.Transient(err), "%s: %v", call, err)
}

// Prevents: a program that forgot to call Migrate gets the database's error alone, about a table
// whose name it has never read.
func TestMissingTablesAreNamed(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		require.NoError(t, h.box.MigrateDown(t.Context(), h.db, 0))
		message := numbered("k", 0)
		wantNotMigrated(t, h.insertIn(t.Context(), func() {}, message), h.table, "InsertTx")
		message.NotBefore = time.Now().Add(time.Hour)
		wantNotMigrated(t, h.insertIn(t.Context(), func() {}, message), h.table+"_scheduled",
			"InsertTx, later")
		_, err := h.box.Lag(t.Context(), h.db)
		wantNotMigrated(t, err, h.table, "Lag")
		_, err = h.box.Parked(t.Context(), h.db, 0, 1)
		wantNotMigrated(t, err, h.table+"_parked", "Parked")
		_, err = h.box.Published(t.Context(), h.db, 0, 1)
		wantNotMigrated(t, err, h.table+"_published", "Published")
		_, err = h.box.Requeue(t.Context(), h.db, 1)
		wantNotMigrated(t, err, h.table, "Requeue")
		require.NoError(t, h.box.Migrate(t.Context(), h.db), "what the errors advise")
		h.insert(t, message)
	})
}

func TestMissingTablesAreNamedThroughPgx(t *testing.T) {
	h := newHouse(t, postgres())
	require.NoError(t, h.box.MigrateDown(t.Context(), h.db, 0))
	conn, err := pgx.Connect(t.Context(), h.dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	wantNotMigrated(t, h.box.InsertTx(t.Context(), pgxv5.Wrap(tx), numbered("k", 0)), h.table,
		"InsertTx")
	assert.NoError(t, tx.Rollback(t.Context()))
}
