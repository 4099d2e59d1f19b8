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

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlserver"
)

func serverMarks(t *testing.T) *sqladapter.Ledger {
	t.Helper()
	m, err := sqladapter.New(sqladapter.Config{Dialect: sqlserver.Dialect, Namespace: "played",
		Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What the driver makes of statements, parameters and answers, of a key and of a batch.
func TestPlayedSQLServerMarks(t *testing.T) {
	server, db := playServer(t)
	m := serverMarks(t)
	ctx := t.Context()
	body := dedup.WithFingerprint([]byte("body"))
	mark, err := m.Do(ctx, db, "a", func(ctx context.Context, tx *sql.Tx) error {
		return m.SaveResultTx(ctx, tx, "a", []byte("receipt"))
	}, body)
	if err != nil || !mark.First() {
		t.Fatalf("first: %+v, %v", mark, err)
	}
	mark, err = m.Do(ctx, db, "a", mustNotRun(t), body)
	if err != nil || mark.Outcome != dedup.Duplicate || string(mark.Result) != "receipt" ||
		mark.Age != 3*time.Second || mark.Fingerprint != driver.FingerprintOf([]byte("body")) {
		t.Errorf("duplicate: %+v, %v", mark, err)
	}
	if mark, err = m.Do(ctx, db, "a", mustNotRun(t),
		dedup.WithFingerprint([]byte("other"))); !errors.Is(err, dedup.ErrMismatch) ||
		mark.Outcome != dedup.Mismatch {
		t.Errorf("mismatch: %+v, %v", mark, err)
	}
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
	if err != nil || first != len(keys)-1 || marks[3].Outcome != dedup.Duplicate ||
		string(marks[3].Result) != "receipt" {
		t.Errorf("batch: %d first of %d, %v", first, len(keys), err)
	}
	if got := server.declared[0]; got != "@p1 bigint,@p2 varbinary(16),@p3 varbinary(17)" {
		t.Errorf("declared %s", got)
	}
	// Without a CAST this parameter would not go into a binary column.
	if got := server.declared[3]; !strings.HasPrefix(got,
		"@p1 bigint,@p2 varbinary(16),@p3 nvarchar(1),") {
		t.Errorf("declared %.60s", got)
	}
}

func mustNotRun(t *testing.T) func(context.Context, *sql.Tx) error {
	return func(context.Context, *sql.Tx) error { t.Error("the effect was run"); return nil }
}

func number(n int32) *int32 { return &n }

// What becomes of effects when the server fails, however the effect takes it.
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
		// Prevents: what it did before is committed, and the rest is not. It is tried again, as it
		// may pass.
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
			if mark.Outcome != tt.outcome || (err == nil) != (tt.err == nil) ||
				tt.err != nil && (!errors.As(err, &refused) || refused.Number != *tt.err) {
				t.Errorf("Do = %v, %v", mark.Outcome, err)
			}
			want := 0
			if err == nil {
				want = 1
			}
			if effects, stray := server.committed(); effects != want || stray != 0 {
				t.Errorf("%d effects, want %d; %d in no transaction", effects, want, stray)
			}
		})
	}
}

// A mark in no transaction is refused; so is one in a transaction that the server has ended.
func TestPlayedSQLServerNoTransaction(t *testing.T) {
	_, db := playServer(t)
	m := serverMarks(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = m.MarkTx(t.Context(), conn, "k")
	var input *dedup.InputError
	if !errors.As(err, &input) || input.Field != "tx" {
		t.Errorf("in no transaction: %v", err)
	}
	tx, err := conn.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "FAIL 1205"); !sqladapter.Retryable(err) {
		t.Errorf("deadlock: %v", err)
	}
	if mark, err := m.MarkTx(t.Context(), tx, "k"); mark.First() || err == nil {
		t.Errorf("after a deadlock: %v, %v", mark.Outcome, err)
	}
}

// Confirm waits for who has not ended, and finds out about who has.
func TestPlayedSQLServerConfirm(t *testing.T) {
	server, db := playServer(t)
	m := serverMarks(t)
	begin := func() (*sql.Tx, sqladapter.Mark) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		mark, err := m.MarkTx(t.Context(), tx, "k")
		if err != nil {
			t.Fatal(err)
		}
		return tx, mark
	}
	tx, mark := begin()
	if verdict, err := m.Confirm(t.Context(), db, "k", mark); verdict != sqladapter.Undecided ||
		!errors.Is(err, dedup.ErrInFlight) {
		t.Errorf("while it is open: %v, %v", verdict, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if verdict, err := m.Confirm(t.Context(), db, "k", mark); verdict != sqladapter.NotCommitted ||
		err != nil {
		t.Errorf("rolled back: %v, %v", verdict, err)
	}
	tx, mark = begin()
	server.lose = "after"
	if err := tx.Commit(); err == nil {
		t.Fatal("COMMIT was answered")
	}
	if verdict, err := m.Confirm(t.Context(), db, "k", mark); verdict != sqladapter.Committed ||
		err != nil {
		t.Errorf("committed: %v, %v", verdict, err)
	}
}
