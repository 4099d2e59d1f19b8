package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlserver"
)

func serverMarks(t *testing.T) *sqladapter.Ledger {
	t.Helper()
	m, err := sqladapter.New(sqladapter.Config{Dialect: sqlserver.Dialect, Namespace: "played",
		Window: time.Hour})
	require.NoError(t, err)
	return m
}

// The driver passes on the statements, parameters and answers of a key and of a batch.
func TestPlayedSQLServerMarks(t *testing.T) {
	server, db := playServer(t)
	m := serverMarks(t)
	ctx := t.Context()
	body := dedup.WithFingerprint([]byte("body"))
	mark, err := m.Do(ctx, db, "a", func(ctx context.Context, tx *sql.Tx) error {
		return m.SaveResultTx(ctx, tx, "a", []byte("receipt"))
	}, body)
	require.NoError(t, err)
	require.True(t, mark.First(), "first")
	mark, err = m.Do(ctx, db, "a", mustNotRun(t), body)
	require.NoError(t, err)
	assert.Equal(t, dedup.Duplicate, mark.Outcome, "duplicate")
	assert.Equal(t, "receipt", string(mark.Result), "duplicate")
	assert.Equal(t, 3*time.Second, mark.Age, "duplicate")
	assert.Equal(t, driver.FingerprintOf([]byte("body")), mark.Fingerprint, "duplicate")
	mark, err = m.Do(ctx, db, "a", mustNotRun(t),
		dedup.WithFingerprint([]byte("other")))
	assert.ErrorIs(t, err, dedup.ErrMismatch, "mismatch")
	assert.Equal(t, dedup.Mismatch, mark.Outcome, "mismatch")
	keys := make([]string, 700) // in two statements, and with the first one's key
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
	}
	keys[3] = "a"
	var first int
	marks, err := m.DoBatch(ctx, db, keys, func(_ context.Context, _ *sql.Tx, at []int) error {
		first = len(at)
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, len(keys)-1, first, "batch")
	require.Equal(t, dedup.Duplicate, marks[3].Outcome, "batch")
	assert.Equal(t, "receipt", string(marks[3].Result), "batch")
	assert.Equal(t, "@p1 bigint,@p2 varbinary(16),@p3 varbinary(17)", server.declared[0])
	// Without a CAST this parameter would not go into a binary column.
	got := server.declared[3]
	assert.True(t, strings.HasPrefix(got,
		"@p1 bigint,@p2 varbinary(16),@p3 nvarchar(1),"), "declared %.60s", got)
}

func mustNotRun(t *testing.T) func(context.Context, *sql.Tx) error {
	return func(context.Context, *sql.Tx) error { t.Error("the effect was run"); return nil }
}

func number(n int32) *int32 { return &n }

// When the server fails, Do has the effect once, or returns the error and has no effect. This holds
// even if the effect ignores the error.
func TestPlayedSQLServerDo(t *testing.T) {
	m := serverMarks(t)
	run := func(ctx context.Context, tx *sql.Tx, text string) error {
		_, err := tx.ExecContext(ctx, text)
		return err
	}
	for name, tt := range map[string]struct {
		errs []int32
		lose string
		// effects of each try; the last one is repeated.
		effects  [][]string
		heedless bool
		outcome  driver.Outcome
		err      *int32 // the number of what Do returns
	}{
		"first":              {outcome: dedup.Acquired},
		"deadlock, then not": {errs: []int32{1205, 1205}, outcome: dedup.Acquired},
		"a key made by hand": {errs: []int32{2627}, outcome: dedup.Acquired},
		"lock timeout":       {errs: []int32{1222}, outcome: dedup.InFlight, err: number(1222)},
		"deadlock in the effect": {effects: [][]string{{"FAIL 1205"}, {"+1"}},
			outcome: dedup.Acquired},
		"deadlock is not heeded": {effects: [][]string{{"+1", "FAIL 1205", "+1"}, {"+1"}},
			heedless: true, outcome: dedup.Acquired},
		"constraint": {effects: [][]string{{"+1", "FAIL 547"}}, err: number(547)},
		// Prevents: its earlier writes are committed, and the rest is not. It is tried again,
		// because the error may pass.
		"constraint is not heeded": {effects: [][]string{{"+1", "FAIL 547", "+1"}}, heedless: true,
			err: number(0)},
		"lost COMMIT that happened": {lose: "after", outcome: dedup.Duplicate},
		"lost COMMIT that did not":  {lose: "before", outcome: dedup.Acquired},
	} {
		t.Run(name, func(t *testing.T) {
			server, db := playServer(t)
			server.errs, server.lose = tt.errs, tt.lose
			tries := 0
			mark, err := m.Do(t.Context(), db, "k", func(ctx context.Context, tx *sql.Tx) error {
				texts := []string{"+1"}
				if len(tt.effects) > 0 {
					texts = tt.effects[min(tries, len(tt.effects)-1)]
				}
				tries++
				for _, text := range texts {
					if err := run(ctx, tx, text); err != nil && !tt.heedless {
						return err
					}
				}
				return nil
			})
			var refused mssql.Error
			assert.Equal(t, tt.outcome, mark.Outcome)
			require.Equal(t, tt.err == nil, err == nil)
			assert.False(t,
				tt.err != nil && (!errors.As(err, &refused) || refused.Number != *tt.err), "%v",
				err)
			want := 0
			if err == nil {
				want = 1
			}
			effects, stray := server.committed()
			assert.Equal(t, want, effects)
			assert.Zero(t, stray)
		})
	}
}

// A mark in no transaction is refused; so is one in a transaction that the server has ended.
func TestPlayedSQLServerNoTransaction(t *testing.T) {
	_, db := playServer(t)
	m := serverMarks(t)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = m.MarkTx(t.Context(), conn, "k")
	var input *dedup.InputError
	require.ErrorAs(t, err, &input, "in no transaction")
	assert.Equal(t, "tx", input.Field, "in no transaction")
	tx, err := conn.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "FAIL 1205")
	assert.True(t, sqladapter.Retryable(err), "deadlock: %v", err)
	mark, err := m.MarkTx(t.Context(), tx, "k")
	assert.False(t, mark.First(), "after a deadlock: %v", mark.Outcome)
	assert.Error(t, err, "after a deadlock: %v", mark.Outcome)
}

// Confirm waits for a transaction that has not ended, and finds out how another one has ended.
func TestPlayedSQLServerConfirm(t *testing.T) {
	server, db := playServer(t)
	m := serverMarks(t)
	begin := func() (*sql.Tx, sqladapter.Mark) {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		mark, err := m.MarkTx(t.Context(), tx, "k")
		require.NoError(t, err)
		return tx, mark
	}
	tx, mark := begin()
	status, err := m.Confirm(t.Context(), db, "k", mark)
	assert.Equal(t, sqladapter.Undecided, status, "while it is open")
	assert.ErrorIs(t, err, dedup.ErrInFlight, "while it is open")
	require.NoError(t, tx.Rollback())
	status, err = m.Confirm(t.Context(), db, "k", mark)
	require.NoError(t, err)
	assert.Equal(t, sqladapter.NotCommitted, status, "rolled back")
	tx, mark = begin()
	server.lose = "after"
	require.Error(t, tx.Commit(), "COMMIT was answered")
	status, err = m.Confirm(t.Context(), db, "k", mark)
	require.NoError(t, err)
	assert.Equal(t, sqladapter.Committed, status, "committed")
}
