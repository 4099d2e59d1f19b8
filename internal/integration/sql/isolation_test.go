package sql_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter"
)

// TestIsolation: what the loser of a race is told at each level of PostgreSQL. Above
// READ COMMITTED it has to begin again, and then learns the truth.
func TestIsolation(t *testing.T) {
	forEachPostgres(t, func(t *testing.T, e engine) {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead,
			sql.LevelSerializable} {
			t.Run(level.String(), func(t *testing.T) {
				s := newShop(t, e)
				loser := begin(t, s.db, level)
				if _, err := loser.ExecContext(t.Context(),
					`SELECT count(*) FROM `+s.ledger); err != nil {
					t.Fatal(err) // takes the snapshot before the winner's commit
				}
				if first, err := s.deliver(t.Context(), "m", nil); err != nil || !first {
					t.Fatalf("winner: %v, %v", first, err)
				}
				mark, err := s.marks.MarkTx(t.Context(), loser, "m")
				if level == sql.LevelReadCommitted {
					if err != nil || mark.Outcome != dedup.Duplicate {
						t.Errorf("loser: %v, %v", mark.Outcome, err)
					}
					return
				}
				var state interface{ SQLState() string }
				if !errors.As(err, &state) || state.SQLState() != "40001" ||
					!sqladapter.Retryable(err) || mark.Outcome != dedup.Unknown {
					t.Fatalf("loser: %v, %v; want a retryable 40001", mark.Outcome, err)
				}
				if err := loser.Rollback(); err != nil {
					t.Fatal(err)
				}
				again := begin(t, s.db, level)
				if mark, err := s.marks.MarkTx(t.Context(), again, "m"); err != nil ||
					mark.Outcome != dedup.Duplicate {
					t.Errorf("loser, second try: %v, %v", mark.Outcome, err)
				}
			})
		}
	})
}

// TestOneStatementSeesOneSnapshot is why MarkTx has two statements. The single WITH that
// is often published as free of races gives the loser no row at all: neither its own nor
// the winner's.
func TestOneStatementSeesOneSnapshot(t *testing.T) {
	s := newShop(t, postgres("cache_statement"))
	winner := begin(t, s.db, sql.LevelDefault)
	if _, err := s.marks.MarkTx(t.Context(), winner, "m"); err != nil {
		t.Fatal(err)
	}
	id, err := driver.NewID("shop", "", "m")
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() {
		var n int
		answer <- s.db.QueryRowContext(t.Context(), `WITH ins AS (
				INSERT INTO `+s.table+` (id, stamp)
				SELECT encode($1::bytea, 'hex')::uuid, 0
				ON CONFLICT DO NOTHING RETURNING id
			)
			SELECT 1 FROM `+s.table+` WHERE id = encode($1::bytea, 'hex')::uuid`, id[:]).Scan(&n)
	}()
	waitForLock(t, s.db, s.table)
	if err := winner.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; !errors.Is(err, sql.ErrNoRows) {
		t.Fatalf("the one-statement form answered %v; if it now sees the winner's row, MarkTx could use it", err)
	}
	s.wantMark(t, "m", true)
}

// TestLockTimeout: a bounded wait answers "in flight", which is never acknowledged.
func TestLockTimeout(t *testing.T) {
	forEachPostgres(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		winner := begin(t, s.db, sql.LevelDefault)
		if _, err := s.marks.MarkTx(t.Context(), winner, "m"); err != nil {
			t.Fatal(err)
		}
		loser := begin(t, s.db, sql.LevelDefault)
		if _, err := loser.ExecContext(t.Context(), `SET LOCAL lock_timeout = '20ms'`); err != nil {
			t.Fatal(err)
		}
		mark, err := s.marks.MarkTx(t.Context(), loser, "m")
		if mark.Outcome != dedup.InFlight || !errors.Is(err, dedup.ErrInFlight) ||
			!sqladapter.Retryable(err) {
			t.Errorf("loser: %v, %v", mark.Outcome, err)
		}
	})
}

// TestSQLiteReadThenMark: a deferred transaction that has read cannot mark once another
// one has committed, whatever the timeout; run again from BEGIN it can.
func TestSQLiteReadThenMark(t *testing.T) {
	file := t.TempDir() + "/marks.db"
	s := newShop(t, engine{name: "sqlite/deferred", dialect: sqladapter.SQLite,
		open: func(t *testing.T) *sql.DB {
			return openDB(t, "sqlite", sqliteDSN(file, "deferred"))
		}})
	read := func() *sql.Tx {
		tx := begin(t, s.db, sql.LevelDefault)
		var n int
		if err := tx.QueryRowContext(t.Context(),
			`SELECT count(*) FROM `+s.ledger).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	late := read()
	if _, err := s.deliver(t.Context(), "m", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.marks.MarkTx(t.Context(), late, "m"); !sqladapter.Retryable(err) {
		t.Fatalf("mark on an old snapshot: %v, want a retryable error", err)
	}
	if err := late.Rollback(); err != nil {
		t.Fatal(err)
	}
	again := read()
	if mark, err := s.marks.MarkTx(t.Context(), again, "m"); err != nil ||
		mark.Outcome != dedup.Duplicate {
		t.Errorf("second try: %v, %v", mark.Outcome, err)
	}
}

// TestConn: a transaction begun by hand on a single connection is a transaction too.
func TestConn(t *testing.T) {
	s := newShop(t, sqlite())
	conn, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for i, want := range []driver.Outcome{dedup.Acquired, dedup.Acquired, dedup.Duplicate} {
		end := "COMMIT"
		if i == 0 {
			end = "ROLLBACK"
		}
		if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
		if mark, err := s.marks.MarkTx(t.Context(), conn, "m"); err != nil || mark.Outcome != want {
			t.Errorf("round %d: %v, %v; want %v", i, mark.Outcome, err, want)
		}
		if _, err := conn.ExecContext(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
}
