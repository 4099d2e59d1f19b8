package sqladapter

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// savedBy has the statements of a Run in SQLite that is the first, and saves a result.
func savedBy(m *Ledger, end string) []Step {
	return []Step{
		{Query: insertText(m), Rows: inserted},
		{Query: setUndo},
		{Query: end},
		{Query: m.dialect.save(entry{}, nil).text, Rows: func(args []any) [][]sqldriver.Value {
			return [][]sqldriver.Value{{args[0]}}
		}},
	}
}

// openRunner is a Runner on a script.
func openRunner(t *testing.T, m *Ledger, steps ...Step) (*Runner, *Script) {
	t.Helper()
	db, s := openScript(t, steps...)
	r, err := m.Runner(db)
	require.NoError(t, err)
	return r, s
}

func keeps(value string, undo bool) func(context.Context) ([]byte, bool, error) {
	return func(context.Context) ([]byte, bool, error) { return []byte(value), undo, nil }
}

func TestRunnerConfig(t *testing.T) {
	db, _ := openScript(t)
	for name, row := range map[string]struct {
		dialect Dialect
		timeout time.Duration
		field   string
	}{
		"default":               {Postgres, 0, ""},
		"least":                 {MySQL, time.Millisecond, ""},
		"most":                  {Postgres, time.Hour, ""},
		"less":                  {Postgres, time.Millisecond - 1, "LockTimeout"},
		"more":                  {MySQL, time.Hour + 1, "LockTimeout"},
		"negative":              {Postgres, -time.Second, "LockTimeout"},
		"SQLite":                {SQLite, 0, ""},
		"SQLite with a timeout": {SQLite, time.Second, "LockTimeout"},
		"SQL Server":            {dialect.SQLServer, 0, "Dialect"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := New(Config{Dialect: row.dialect, Namespace: "payments",
				LockTimeout: row.timeout})
			var r *Runner
			if err == nil {
				r, err = m.Runner(db)
			}
			if row.field == "" {
				require.NoError(t, err)
				assert.NotNil(t, r)
				return
			}
			var input *dedup.InputError
			require.ErrorAs(t, err, &input)
			assert.Equal(t, row.field, input.Field)
			assert.Nil(t, r)
		})
	}
	_, err := (*Ledger)(nil).Runner(db)
	assert.Error(t, err, "of no marks")
	r, err := newMarks(t, SQLite).Runner(db)
	require.NoError(t, err)
	assert.Equal(t, time.Hour, r.Window())
	assert.Equal(t, defaultResultLimit, r.ResultLimit())
	assert.True(t, r.Atomic())
	_, err = (*Runner)(nil).Run(t.Context(), testKey, keeps("x", false))
	assert.Error(t, err, "Run of no Runner")
}

// The statements for PostgreSQL and MySQL: only the mark has a short lock timeout. The result is
// saved after a check that the transaction is still open.
func TestRunnerStatements(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		m := newMarks(t, Postgres)
		r, s := openRunner(
			t, m,
			Step{Like: `set_config('lock_timeout', '1000', true)`,
				Rows: func([]any) [][]sqldriver.Value { return [][]sqldriver.Value{{"7s", "1s"}} }},
			Step{Query: insertText(m), Rows: func(args []any) [][]sqldriver.Value {
				return [][]sqldriver.Value{{parseUUID(t, args[0].(string)), at(1, args[1].(int64))}}
			}},
			Step{Query: `SELECT set_config('lock_timeout', $1, true)`},
			Step{Query: setUndo}, Step{Query: rollbackToUndo},
			Step{Query: m.dialect.save(entry{}, nil).text,
				Rows: func(args []any) [][]sqldriver.Value {
					return [][]sqldriver.Value{{parseUUID(t, args[0].(string))}}
				}},
		)
		res, err := r.Run(t.Context(), testKey, keeps("x", true))
		require.NoError(t, err)
		assert.Equal(t, dedup.Acquired, res.Outcome)
		assert.Equal(t, 1, s.Committed)
		assert.Equal(t, []any{"7s"}, s.Args[2])
	})
	t.Run("mysql", func(t *testing.T) {
		m := newMarks(t, MySQL)
		r, s := openRunner(t, m, guarded(
			Step{Query: rowWait + "1"}, newMySQLTable(t, m).insert(), Step{Query: rowWaitBack},
			Step{Query: setUndo}, Step{Query: releaseUndo},
			Step{Like: "_results", Affected: 1}, Step{Query: releaseGuard},
			Step{Query: autocommitBack},
		)...)
		res, err := r.Run(t.Context(), testKey, keeps("x", false))
		require.NoError(t, err)
		assert.Equal(t, dedup.Acquired, res.Outcome)
		assert.Equal(t, 1, s.Committed)
	})
	t.Run("mysql in flight", func(t *testing.T) {
		r, _ := openRunner(t, newMarks(t, MySQL), guarded(
			Step{Query: rowWait + "1"}, Step{Like: "INSERT", Err: mysqlError(1205)},
			Step{Query: autocommitBack}, Step{Query: rowWaitBack},
		)...)
		res, err := r.Run(t.Context(), testKey, keeps("x", false))
		assert.ErrorIs(t, err, dedup.ErrInFlight)
		assert.Equal(t, dedup.InFlight, res.Outcome)
	})
}

// If nobody can find out how COMMIT ended, the error is ErrUnknown, and the value is returned.
func TestRunnerUnknown(t *testing.T) {
	m := newMarks(t, SQLite)
	down := slices.Repeat([]error{io.ErrUnexpectedEOF}, maxTries-1)
	for name, row := range map[string]struct {
		commit  error
		begins  []error
		unknown bool
	}{
		"COMMIT is lost, and the server": {io.ErrUnexpectedEOF,
			append([]error{nil}, down...), true},
		"COMMIT is refused":                  {codeError("23503"), nil, false},
		"COMMIT fails, and nobody knows how": {errors.New("disk I/O error"), nil, true},
		"COMMIT finds no transaction":        {codeError("25P01"), nil, true},
		"COMMIT is undone, and the server goes": {codeError("40001"),
			append([]error{nil}, down...), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, s := openRunner(t, m, savedBy(m, releaseUndo)...)
				s.Commits, s.Begins = []error{row.commit}, row.begins
				res, err := r.Run(t.Context(), testKey, keeps("x", false))
				assert.Error(t, err, "Run = %v %q", res.Outcome, res.Value)
				assert.Equal(t, row.unknown, dedup.OutcomeUnknown(err), "Run = %v %q", res.Outcome,
					res.Value)
				assert.Equal(t, row.unknown, string(res.Value) == "x", "Run = %v %q", res.Outcome,
					res.Value)
			})
		})
	}
}

// The effect may take any time. The statements after it may not.
func TestRunnerBound(t *testing.T) {
	m := newMarks(t, SQLite)
	long := func(context.Context) ([]byte, bool, error) {
		<-time.After(time.Hour)
		return []byte("x"), false, nil
	}
	t.Run("a long effect", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, _ := openRunner(t, m, savedBy(m, releaseUndo)...)
			res, err := r.Run(t.Context(), testKey, long)
			require.NoError(t, err)
			assert.Equal(t, "x", string(res.Value))
		})
	})
	t.Run("the last statement before the effect", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := &runnerCall{leave: func() bool { return true },
			bound: time.AfterFunc(0, func() { cancel(errRunnerBound) }),
			effect: func(context.Context) ([]byte, bool, error) {
				t.Error("began under a context that has ended")
				return nil, false, nil
			}}
		<-ctx.Done()
		_, _, err := c.run(ctx, nil)
		assert.Equal(t, errRunnerBound, err)
	})
	t.Run("a COMMIT without an answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, s := openRunner(t, m, savedBy(m, releaseUndo)...)
			s.OnCommit = func(tx context.Context) error { <-tx.Done(); return tx.Err() }
			began := time.Now()
			res, err := r.Run(t.Context(), testKey, long)
			took := time.Since(began) - time.Hour
			assert.True(t, dedup.OutcomeUnknown(err), "%v", err)
			assert.Equal(t, "x", string(res.Value))
			assert.Equal(t, runnerBound+commitGrace, took)
		})
	})
}

// Only the context of an effect has a transaction.
func TestTxFrom(t *testing.T) {
	tx, ok := TxFrom(t.Context())
	assert.False(t, ok, "a transaction of nobody")
	assert.Nil(t, tx, "a transaction of nobody")
	m := newMarks(t, SQLite)
	r, s := openRunner(t, m, savedBy(m, releaseUndo)[:3]...)
	res, err := r.Run(t.Context(), testKey, func(ctx context.Context) ([]byte, bool, error) {
		tx, ok := TxFrom(ctx)
		assert.True(t, ok, "no transaction")
		assert.NotNil(t, tx, "no transaction")
		return nil, false, nil // which is not saved
	})
	require.NoError(t, err)
	assert.Equal(t, dedup.Acquired, res.Outcome)
	assert.Equal(t, 1, s.Committed)
}

// A second call of a key during the first is refused before it gets a connection. A call after the
// first is not, even if the first has panicked.
func TestRunnerGate(t *testing.T) {
	m := newMarks(t, SQLite)
	r, s := openRunner(t, m, slices.Concat(savedBy(m, releaseUndo)[:2], savedBy(m, releaseUndo))...)
	inside := func(context.Context) ([]byte, bool, error) {
		res, err := r.Run(t.Context(), testKey, keeps("x", false))
		assert.ErrorIs(t, err, dedup.ErrInFlight, "inside")
		assert.Equal(t, dedup.InFlight, res.Outcome, "inside")
		assert.Equal(t, driver.StateInProgress, res.Record.State, "inside")
		assert.Equal(t, 1, s.Begun, "inside")
		panic("boom")
	}
	func() {
		defer func() { _ = recover() }()
		_, err := r.Run(t.Context(), testKey, inside)
		t.Errorf("a panic is swallowed: %v", err)
	}()
	res, err := r.Run(t.Context(), testKey, keeps("x", false))
	require.NoError(t, err)
	assert.Equal(t, dedup.Acquired, res.Outcome, "after it")
	assert.Equal(t, 1, s.RolledBack, "after it")
	assert.Equal(t, 1, s.Committed, "after it")
}
