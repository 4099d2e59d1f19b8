package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// TestMariaDBIsolation: at every level a transaction whose snapshot is older than the
// winner's commit is told the truth, with the result, in a batch as well. A plain read would not
// see the row.
func TestMariaDBIsolation(t *testing.T) {
	for _, e := range []engine{mariadb(), inGenerations(mariadb())} {
		for _, level := range levels(e.dialect) {
			t.Run(e.name+"/"+level.String(), func(t *testing.T) {
				s := newShop(t, e)
				loser := begin(t, s.db, level)
				// Takes the snapshot before the winner's commit, and no lock in its way.
				if _, err := loser.ExecContext(t.Context(),
					`SELECT window_ms FROM "`+s.table+`_meta"`); err != nil {
					t.Fatal(err)
				}
				for _, message := range []string{"m", "n"} {
					if _, err := s.saves(t.Context(), message, []byte("receipt")); err != nil {
						t.Fatal(err)
					}
				}
				mark, err := s.marks.MarkTx(t.Context(), loser, "m")
				if err != nil || mark.Outcome != dedup.Duplicate ||
					string(mark.Result) != "receipt" {
					t.Errorf("loser: %v %q, %v", mark.Outcome, mark.Result, err)
				}
				marks, err := s.marks.MarkBatchTx(t.Context(), loser,
					requests([]string{"n", "new"}))
				if err != nil || marks[0].Outcome != dedup.Duplicate ||
					string(marks[0].Result) != "receipt" || !marks[1].First() {
					t.Errorf("loser, in a batch: %v, %v", marks, err)
				}
				if err := loser.Rollback(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestMariaDBSnapshotIsolation: with innodb_snapshot_isolation the server rolls such a
// transaction back, and it must begin again. Do does by itself.
func TestMariaDBSnapshotIsolation(t *testing.T) {
	for _, e := range []engine{mariadb(), inGenerations(mariadb())} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e)
			strict := *s
			strict.db = openDB(t, "mysql",
				mariadbDSN(t, servertest.MariaDB(t), func(c *mysql.Config) {
					c.Params["innodb_snapshot_isolation"] = "1"
				}))
			loser := begin(t, strict.db, sql.LevelRepeatableRead)
			if _, err := loser.ExecContext(t.Context(),
				`SELECT count(*) FROM `+s.ledger); err != nil {
				t.Fatal(err)
			}
			if _, err := s.do(t.Context(), "m"); err != nil {
				t.Fatal(err)
			}
			mark, err := strict.marks.MarkTx(t.Context(), loser, "m")
			var server *mysql.MySQLError
			if !errors.As(err, &server) || server.Number != 1020 || !sqladapter.Retryable(err) ||
				mark.Outcome != dedup.Unknown {
				t.Errorf("loser: %v, %v; want a retryable 1020", mark.Outcome, err)
			}
			// What goes on in a transaction that the server has ended is refused.
			var input *dedup.InputError
			if _, err := strict.marks.MarkTx(t.Context(), loser, "n"); !errors.As(err, &input) ||
				input.Field != "tx" {
				t.Errorf("after that: %v, want an InputError on tx", err)
			}
			s.wantMark(t, "n", false)
			strict.wantDone(t, "m")
		})
	}
}

// TestMariaDBRefuses: what Migrate and Check do not put up with.
func TestMariaDBRefuses(t *testing.T) {
	s := newShop(t, mariadb())
	found := openDB(t, "mysql", mariadbDSN(t, servertest.MariaDB(t), func(c *mysql.Config) {
		c.ClientFoundRows = true
	}))
	for name, call := range map[string]func(context.Context,
		*sql.DB) error{"Migrate": s.marks.Migrate, "Check": s.marks.Check} {
		if err := call(t.Context(), found); err == nil ||
			!strings.Contains(err.Error(), "clientFoundRows") {
			t.Errorf("%s with clientFoundRows: %v", name, err)
		}
		if err := call(t.Context(), s.db); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.exec(t, `ALTER TABLE "`+s.table+`" ENGINE = MyISAM`)
	if err := s.marks.Check(t.Context(), s.db); err == nil ||
		!strings.Contains(err.Error(), "InnoDB") {
		t.Errorf("Check of MyISAM: %v", err)
	}
}

// TestMariaDBNoTransaction: on a connection without one the mark is not made.
func TestMariaDBNoTransaction(t *testing.T) {
	s := newShop(t, mariadb())
	conn, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var input *dedup.InputError
	if _, err := s.marks.MarkTx(t.Context(), conn, "m"); !errors.As(err, &input) ||
		input.Field != "tx" {
		t.Errorf("MarkTx = %v, want an InputError on tx", err)
	}
	if _, err := s.marks.MarkBatchTx(t.Context(), conn,
		[]dedup.Request{{Key: "m"}}); !errors.As(err, &input) || input.Field != "tx" {
		t.Errorf("MarkBatchTx = %v, want an InputError on tx", err)
	}
	s.wantMark(t, "m", false)
}

// TestMariaDBInFlight: a lock wait timeout is "in flight", for MarkTx and for Do.
func TestMariaDBInFlight(t *testing.T) {
	s := newShop(t, mariadb())
	if _, err := s.marks.MarkTx(t.Context(), begin(t, s.db, sql.LevelDefault), "m"); err != nil {
		t.Fatal(err)
	}
	loser := *s
	loser.db = s.impatient(t)
	mark, err := s.marks.MarkTx(t.Context(), begin(t, loser.db, sql.LevelDefault), "m")
	if mark.Outcome != dedup.InFlight || !errors.Is(err, dedup.ErrInFlight) ||
		!sqladapter.Retryable(err) {
		t.Errorf("MarkTx: %v, %v", mark.Outcome, err)
	}
	if mark, err := loser.do(t.Context(), "m"); mark.Outcome != dedup.InFlight ||
		!errors.Is(err, dedup.ErrInFlight) {
		t.Errorf("Do: %v, %v", mark.Outcome, err)
	}
}

// TestMariaDBIgnoredDeadlock: an effect that goes on after a deadlock as if nothing had
// happened. The server has rolled mark and effect back, and what the effect writes then is in
// no transaction of ours. Do notices, takes it back too, and runs the whole again.
func TestMariaDBIgnoredDeadlock(t *testing.T) {
	s := newShop(t, mariadb())
	accounts := servertest.Prefix(t) + "_accounts"
	s.exec(t, `CREATE TABLE `+accounts+` (id int PRIMARY KEY, balance int NOT NULL)`)
	t.Cleanup(func() { s.exec(t, `DROP TABLE `+accounts) })
	s.exec(t, `INSERT INTO `+accounts+` VALUES (1, 0), (2, 0)`)
	runs := 0
	mark, err := s.do(t.Context(), "m", func(tx *sql.Tx) error {
		if runs++; runs > 1 {
			return nil
		}
		s.deadlock(t, tx, accounts)
		_, err := tx.ExecContext(t.Context(),
			`UPDATE `+accounts+` SET balance = balance + 100 WHERE id = 1`)
		return err
	})
	if err != nil || !mark.First() || runs != 2 {
		t.Errorf("Do = %v, %v after %d runs; want the second run to be first",
			mark.Outcome, err, runs)
	}
	s.wantEffects(t, []string{"m"})
	var balance int
	if err := s.db.QueryRowContext(t.Context(),
		`SELECT max(balance) FROM `+accounts).Scan(&balance); err != nil || balance != 1 {
		t.Errorf("the largest balance is %d, %v; want 1: what came after the deadlock must not stay", balance, err)
	}
	var autocommit bool
	if err := s.db.QueryRowContext(t.Context(),
		`SELECT @@autocommit`).Scan(&autocommit); err != nil || !autocommit {
		t.Errorf("the session came back with autocommit %v, %v", autocommit, err)
	}
}

// deadlock makes tx the victim of one: the other transaction has written more.
func (s *shop) deadlock(t *testing.T, tx *sql.Tx, accounts string) {
	t.Helper()
	other := begin(t, s.db, sql.LevelDefault)
	add := func(tx *sql.Tx, id string) error {
		_, err := tx.ExecContext(t.Context(),
			`UPDATE `+accounts+` SET balance = balance + 1 WHERE id IN (`+id+`)`)
		return err
	}
	if err := errors.Join(add(tx, "1"), add(other, "2")); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if _, err := other.ExecContext(t.Context(), `INSERT INTO `+accounts+` VALUES (?, 0)`,
			100+i); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := errors.Join(add(other, "1"), other.Commit()); err != nil {
			t.Errorf("the other transaction: %v", err)
		}
	})
	var server *mysql.MySQLError
	if err := add(tx, "2"); !errors.As(err, &server) || server.Number != 1213 {
		t.Errorf("no deadlock: %v", err)
	}
	wg.Wait()
}
