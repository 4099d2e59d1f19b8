package sqladapter

import (
	"context"
	"database/sql"
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
)

// firstTime is a transaction that finds no mark, run times times.
func firstTime(m *Ledger, times int) []Step {
	return slices.Repeat([]Step{{Query: insertText(m), Rows: inserted}}, times)
}

// marked is a transaction that finds the mark of another transaction.
func marked(m *Ledger) []Step {
	return []Step{{Query: insertText(m)}, {Query: loadText(m), Rows: stored(driver.Fingerprint{})}}
}

// afterOurOwn is a transaction that has committed, but whose reply to COMMIT is lost, and the next
// one, which finds the mark of the first. It must not run the effect again.
func afterOurOwn(m *Ledger) []Step {
	var row []sqldriver.Value
	return []Step{
		{Query: insertText(m), Rows: func(args []any) [][]sqldriver.Value {
			row = inserted(args)[0]
			return [][]sqldriver.Value{row}
		}},
		{Query: insertText(m)},
		{Query: loadText(m), Rows: func([]any) [][]sqldriver.Value {
			return [][]sqldriver.Value{append(row, nil, int64(1000), int64(1000), nil)}
		}},
	}
}

func nothing(context.Context, *sql.Tx) error { return nil }

// TestDo counts how often Do runs the transaction and what it commits, and checks its answer.
func TestDo(t *testing.T) {
	m := newMarks(t, SQLite)
	domain := errors.New("no such account")
	lost := safeError(true) // the error of pgx for a lost COMMIT
	tests := map[string]struct {
		steps           []Step
		begins, commits []error
		effect          []error // of each run
		opts            []dedup.Option
		begun           int
		committed       int
		outcome         driver.Outcome
		err             error
		permanent       bool
	}{
		"first": {steps: firstTime(m, 1), effect: []error{nil}, begun: 1, committed: 1,
			outcome: dedup.Acquired},
		"duplicate": {steps: marked(m), begun: 1, outcome: dedup.Duplicate},
		"mismatch": {
			steps: []Step{{Query: insertText(m)},
				{Query: loadText(m), Rows: stored(driver.FingerprintOf([]byte("x")))}},
			opts:  []dedup.Option{dedup.WithFingerprint([]byte("y"))},
			begun: 1, outcome: dedup.Mismatch, err: dedup.ErrMismatch, permanent: true,
		},
		"effect fails": {steps: firstTime(m, 1), effect: []error{domain}, begun: 1,
			err: domain},
		"effect fails for good": {steps: firstTime(m, 1),
			effect: []error{dedup.Permanent(codeError("40001"))}, begun: 1, err: codeError("40001"),
			permanent: true},
		"deadlock in the effect": {steps: firstTime(m, 2),
			effect: []error{codeError("40P01"), nil}, begun: 2, committed: 1,
			outcome: dedup.Acquired},
		"serialization at the end": {steps: firstTime(m, 2), effect: []error{nil, nil},
			commits: []error{codeError("40001")}, begun: 2, committed: 2, outcome: dedup.Acquired},
		"connection lost before": {steps: firstTime(m, 1), begins: []error{io.ErrUnexpectedEOF},
			effect: []error{nil}, begun: 2, committed: 1, outcome: dedup.Acquired},
		"lost COMMIT that happened": {
			steps:  afterOurOwn(m),
			effect: []error{nil}, commits: []error{lost}, begun: 2, committed: 1,
			outcome: dedup.Duplicate,
		},
		"lost COMMIT that did not": {steps: firstTime(m, 2), effect: []error{nil, nil},
			commits: []error{lost}, begun: 2, committed: 2, outcome: dedup.Acquired},
		"COMMIT refused": {steps: firstTime(m, 1), effect: []error{nil},
			commits: []error{codeError("23503")}, begun: 1, committed: 1, err: codeError("23503")},
		"COMMIT that has rolled back": {steps: firstTime(m, 1), effect: []error{nil},
			commits: []error{domain}, begun: 1, committed: 1, err: domain},
		"never serializable": {
			steps: firstTime(m, maxTries), effect: slices.Repeat([]error{codeError("40001")},
				maxTries), begun: maxTries, err: codeError("40001"),
		},
		"lock timeout": {steps: []Step{{Query: insertText(m), Err: codeError("55P03")}}, begun: 1,
			outcome: dedup.InFlight, err: dedup.ErrInFlight},
		"nothing learnt": {
			steps: []Step{{Query: insertText(m), Err: codeError("42P01")}}, begun: 1,
			err: codeError("42P01"),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, s := openScript(t, tt.steps...)
				s.Begins, s.Commits = tt.begins, tt.commits
				effects := tt.effect
				mark, err := m.Do(t.Context(), db, testKey, func(context.Context, *sql.Tx) error {
					if !assert.NotEmpty(t, effects, "the effect ran once too often") {
						return nil
					}
					return shift(&effects)
				}, tt.opts...)
				assert.ErrorIs(t, err, tt.err)
				assert.Equal(t, tt.err == nil, err == nil)
				assert.Equal(t, tt.outcome, mark.Outcome)
				assert.Equal(t, tt.permanent, dedup.IsPermanent(err), "permanent")
				assert.ErrorIs(t, mark.Err, err, "permanent")
				assert.Empty(t, effects)
				assert.Equal(t, tt.begun, s.Begun)
				assert.Equal(t, tt.committed, s.Committed)
				assert.Equal(t, tt.begun-len(tt.begins)-tt.committed, s.RolledBack,
					"%d of %d transactions were rolled back, %d committed", s.RolledBack, s.Begun,
					s.Committed)
			})
		})
	}
}

// A panic of the effect reaches the caller, and nothing is committed.
func TestDoPanics(t *testing.T) {
	m := newMarks(t, SQLite)
	db, s := openScript(t, firstTime(m, 1)...)
	defer func() {
		v := recover()
		assert.Equal(t, "boom", v)
		assert.Equal(t, 1, s.RolledBack)
		assert.Zero(t, s.Committed)
	}()
	_, err := m.Do(t.Context(), db, testKey, func(context.Context, *sql.Tx) error { panic("boom") })
	t.Errorf("Do returned %v", err)
}

// When the caller's context ends before COMMIT is sent, Do rolls back. Later it waits for COMMIT.
func TestDoIsCancelled(t *testing.T) {
	m := newMarks(t, SQLite)
	why := errors.New("the partition is gone")
	t.Run("in the effect", func(t *testing.T) {
		db, s := openScript(t, firstTime(m, 1)...)
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := m.Do(ctx, db, testKey, func(context.Context, *sql.Tx) error {
			cancel(why)
			return nil
		})
		assert.ErrorIs(t, err, why)
		assert.Zero(t, s.Committed)
	})
	t.Run("in the backoff", func(t *testing.T) {
		db, _ := openScript(t, firstTime(m, 1)...)
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := m.Do(ctx, db, testKey, func(context.Context, *sql.Tx) error {
			cancel(why)
			return codeError("40001")
		})
		assert.ErrorIs(t, err, why)
		assert.ErrorIs(t, err, codeError("40001"))
	})
	for name, row := range map[string]struct {
		takes time.Duration
		err   error
	}{"COMMIT that ends": {time.Second, nil}, "COMMIT that hangs": {time.Hour, dedup.ErrUnknown}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, s := openScript(t, firstTime(m, 1)...)
				ctx, cancel := context.WithCancelCause(t.Context())
				s.OnCommit = func(tx context.Context) error {
					cancel(why)
					select {
					case <-time.After(row.takes):
						return nil
					case <-tx.Done():
						return tx.Err()
					}
				}
				began := time.Now()
				_, err := m.Do(ctx, db, testKey, nothing)
				assert.ErrorIs(t, err, row.err)
				assert.Equal(t, row.err == nil, err == nil)
				assert.LessOrEqual(t, time.Since(began), commitGrace)
			})
		})
	}
}

func TestDoIsolation(t *testing.T) {
	m, err := New(Config{Dialect: Postgres, Namespace: "payments",
		Isolation: sql.LevelSerializable})
	require.NoError(t, err)
	db, s := openScript(t, Step{Query: insertText(m), Rows: func(args []any) [][]sqldriver.Value {
		return [][]sqldriver.Value{{parseUUID(t, args[0].(string)), at(1, args[1].(int64))}}
	}})
	mark, err := m.Do(t.Context(), db, testKey, nothing)
	require.NoError(t, err)
	assert.True(t, mark.First(), "%v", mark)
	assert.Equal(t, sql.LevelSerializable, sql.IsolationLevel(s.Isolation))
}

func TestDoBatch(t *testing.T) {
	m := newMarks(t, Postgres)
	done, err := driver.NewID("payments", "tenant", "done")
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		transaction := []Step{
			{Query: insertManyText(m), Rows: insertedMany(t, func(id driver.ID) bool {
				return id != done
			})},
			{Query: loadText(m), Rows: func(args []any) [][]sqldriver.Value {
				return stored(driver.Fingerprint{})([]any{parseUUID(t, args[0].(string))})
			}},
		}
		db, s := openScript(t, slices.Repeat(transaction, 2)...)
		s.Commits = []error{codeError("40001")}
		runs := 0
		marks, err := m.DoBatch(t.Context(), db, []string{"a", "", "done", "a", "b", "a\x00"},
			func(_ context.Context, _ *sql.Tx, first []int) error {
				runs++
				assert.Equal(t, []int{0, 4}, first)
				return nil
			}, dedup.WithScope("tenant"))
		require.NoError(t, err)
		require.Equal(t, 2, runs)
		require.Equal(t, 2, s.Committed)
		want := []driver.Outcome{dedup.Acquired, dedup.Unknown, dedup.Duplicate, dedup.Duplicate,
			dedup.Acquired, dedup.Unknown}
		for i, mark := range marks {
			require.Equal(t, want[i], mark.Outcome, "item %d", i)
			assert.Equal(t, want[i] == dedup.Unknown, dedup.IsPermanent(mark.Err), "item %d", i)
		}
	})
}

// A batch of duplicates runs no effect and commits nothing.
func TestDoBatchOfDuplicates(t *testing.T) {
	m := newMarks(t, SQLite)
	db, s := openScript(t, marked(m)...)
	marks, err := m.DoBatch(t.Context(), db, []string{"a", "a"},
		func(context.Context, *sql.Tx, []int) error {
			t.Error("the effect ran")
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, dedup.Duplicate, marks[0].Outcome, "%v", marks)
	assert.Equal(t, dedup.Duplicate, marks[1].Outcome, "%v", marks)
	assert.Zero(t, s.Committed, "%v", marks)
}

func TestDoBatchRunsNothing(t *testing.T) {
	m := newMarks(t, SQLite)
	db, s := openScript(t) // any statement fails the test
	for _, keys := range [][]string{nil, {}, {""}, {"", "a\xff"}} {
		marks, err := m.DoBatch(t.Context(), db, keys, func(context.Context, *sql.Tx, []int) error {
			return errors.New("ran")
		})
		require.NoError(t, err)
		assert.Len(t, marks, len(keys))
		assert.Zero(t, s.Begun)
	}
}

func TestDoBatchFailsAsAWhole(t *testing.T) {
	m := newMarks(t, SQLite)
	db, s := openScript(t, Step{Query: insertManyText(m), Rows: inserted})
	domain := errors.New("no such account")
	marks, err := m.DoBatch(t.Context(), db, []string{"a", "b"},
		func(context.Context, *sql.Tx, []int) error { return domain })
	assert.Nil(t, marks)
	assert.ErrorIs(t, err, domain)
	assert.Zero(t, s.Committed)
	assert.Equal(t, 1, s.RolledBack)
}
