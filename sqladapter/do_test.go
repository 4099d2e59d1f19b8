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

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// firstTime is a transaction that finds nothing, as often as it is run.
func firstTime(m *Ledger, times int) []Step {
	return slices.Repeat([]Step{{Query: insertText(m), Rows: inserted}}, times)
}

// marked is a transaction that finds somebody's mark.
func marked(m *Ledger) []Step {
	return []Step{{Query: insertText(m)}, {Query: loadText(m), Rows: stored(driver.Fingerprint{})}}
}

// afterOurOwn is a transaction whose COMMIT is lost but has happened, and the next one. The
// mark that it finds must not pass for its own: it would run the effect again.
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

// How often Do runs the whole of a transaction, what it commits, and what it answers.
func TestDo(t *testing.T) {
	m := newMarks(t, SQLite)
	domain := errors.New("no such account")
	lost := safeError(true) // as pgx says of a lost COMMIT
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
					if len(effects) == 0 {
						t.Error("the effect ran once too often")
						return nil
					}
					return shift(&effects)
				}, tt.opts...)
				if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) ||
					mark.Outcome != tt.outcome {
					t.Errorf("Do = %v, %v; want %v, %v", mark.Outcome, err, tt.outcome, tt.err)
				}
				if dedup.IsPermanent(err) != tt.permanent || !errors.Is(mark.Err, err) {
					t.Errorf("permanent: %v, want %v; Mark.Err = %v", dedup.IsPermanent(err),
						tt.permanent, mark.Err)
				}
				if len(effects) > 0 || s.Begun != tt.begun || s.Committed != tt.committed {
					t.Errorf("%d effects did not run, %d begun, %d commits; want %d, %d",
						len(effects), s.Begun, s.Committed, tt.begun, tt.committed)
				}
				if s.RolledBack != tt.begun-len(tt.begins)-tt.committed {
					t.Errorf("%d of %d transactions were rolled back, %d committed", s.RolledBack,
						s.Begun, s.Committed)
				}
			})
		})
	}
}

// A panic of the effect passes through, and nothing is committed.
func TestDoPanics(t *testing.T) {
	m := newMarks(t, SQLite)
	db, s := openScript(t, firstTime(m, 1)...)
	defer func() {
		if v := recover(); v != "boom" || s.RolledBack != 1 || s.Committed != 0 {
			t.Errorf("recovered %v, %d rolled back, %d committed", v, s.RolledBack, s.Committed)
		}
	}()
	_, err := m.Do(t.Context(), db, testKey, func(context.Context, *sql.Tx) error { panic("boom") })
	t.Errorf("Do returned %v", err)
}

// The caller's end rolls back until COMMIT is sent, and does not break COMMIT off.
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
		if !errors.Is(err, why) || s.Committed != 0 {
			t.Errorf("Do = %v, %d commits", err, s.Committed)
		}
	})
	t.Run("in the backoff", func(t *testing.T) {
		db, _ := openScript(t, firstTime(m, 1)...)
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := m.Do(ctx, db, testKey, func(context.Context, *sql.Tx) error {
			cancel(why)
			return codeError("40001")
		})
		if !errors.Is(err, why) || !errors.Is(err, codeError("40001")) {
			t.Errorf("Do = %v", err)
		}
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
				if !errors.Is(err, row.err) || (err == nil) != (row.err == nil) ||
					time.Since(began) > commitGrace {
					t.Errorf("Do = %v after %v, want %v", err, time.Since(began), row.err)
				}
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
	if mark, err := m.Do(t.Context(), db, testKey, nothing); err != nil || !mark.First() {
		t.Error(mark, err)
	}
	if got := sql.IsolationLevel(s.Isolation); got != sql.LevelSerializable {
		t.Errorf("begun at %v", got)
	}
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
				if !slices.Equal(first, []int{0, 4}) {
					t.Errorf("first = %v", first)
				}
				return nil
			}, dedup.WithScope("tenant"))
		if err != nil || runs != 2 || s.Committed != 2 {
			t.Fatalf("%v after %d runs and %d commits", err, runs, s.Committed)
		}
		want := []driver.Outcome{dedup.Acquired, dedup.Unknown, dedup.Duplicate, dedup.Duplicate,
			dedup.Acquired, dedup.Unknown}
		for i, mark := range marks {
			if mark.Outcome != want[i] ||
				dedup.IsPermanent(mark.Err) != (want[i] == dedup.Unknown) {
				t.Errorf("item %d: %v, %v; want %v", i, mark.Outcome, mark.Err, want[i])
			}
		}
	})
}

// A batch of duplicates has no effect to run, and nothing to commit.
func TestDoBatchOfDuplicates(t *testing.T) {
	m := newMarks(t, SQLite)
	db, s := openScript(t, marked(m)...)
	marks, err := m.DoBatch(t.Context(), db, []string{"a", "a"},
		func(context.Context, *sql.Tx, []int) error {
			t.Error("the effect ran")
			return nil
		})
	if err != nil || marks[0].Outcome != dedup.Duplicate || marks[1].Outcome != dedup.Duplicate ||
		s.Committed != 0 {
		t.Errorf("%v, %v, %d commits", marks, err, s.Committed)
	}
}

func TestDoBatchRunsNothing(t *testing.T) {
	m := newMarks(t, SQLite)
	db, s := openScript(t) // any statement fails the test
	for _, keys := range [][]string{nil, {}, {""}, {"", "a\xff"}} {
		marks, err := m.DoBatch(t.Context(), db, keys, func(context.Context, *sql.Tx, []int) error {
			return errors.New("ran")
		})
		if err != nil || len(marks) != len(keys) || s.Begun > 0 {
			t.Errorf("DoBatch(%q) = %v, %v, %d begun", keys, marks, err, s.Begun)
		}
	}
}

func TestDoBatchFailsAsAWhole(t *testing.T) {
	m := newMarks(t, SQLite)
	db, s := openScript(t, Step{Query: insertManyText(m), Rows: inserted})
	domain := errors.New("no such account")
	marks, err := m.DoBatch(t.Context(), db, []string{"a", "b"},
		func(context.Context, *sql.Tx, []int) error { return domain })
	if marks != nil || !errors.Is(err, domain) || s.Committed != 0 || s.RolledBack != 1 {
		t.Errorf("%v, %v, %d commits, %d rolled back", marks, err, s.Committed, s.RolledBack)
	}
}
