package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// TestMariaDBIsolation: a transaction whose snapshot is older than the winner's commit still finds
// the mark and its result, at every isolation level, and also in a batch. A plain read would not
// see the row.
func TestMariaDBIsolation(t *testing.T) {
	for _, e := range []engine{mariadb(), inGenerations(mariadb())} {
		for _, level := range levels(e.dialect) {
			t.Run(e.name+"/"+level.String(), func(t *testing.T) {
				s := newShop(t, e)
				loser := begin(t, s.db, level)
				// This takes the snapshot before the winner's commit, and takes no lock that the
				// winner needs.
				_, err := loser.ExecContext(t.Context(),
					`SELECT window_ms FROM "`+s.table+`_meta"`)
				require.NoError(t, err)
				for _, message := range []string{"m", "n"} {
					_, err := s.saves(t.Context(), message, []byte("receipt"))
					require.NoError(t, err)
				}
				mark, err := s.marks.MarkTx(t.Context(), loser, "m")
				require.NoError(t, err)
				assert.Equal(t, dedup.Duplicate, mark.Outcome, "loser")
				assert.Equal(t, "receipt", string(mark.Result), "loser")
				marks, err := s.marks.MarkBatchTx(t.Context(), loser,
					requests([]string{"n", "new"}))
				require.NoError(t, err)
				require.Equal(t, dedup.Duplicate, marks[0].Outcome, "loser, in a batch: %v", marks)
				require.Equal(t, "receipt", string(marks[0].Result), "loser, in a batch: %v", marks)
				assert.True(t, marks[1].First(), "loser, in a batch: %v", marks)
				assert.NoError(t, loser.Rollback())
			})
		}
	}
}

// TestMariaDBSnapshotIsolation: with innodb_snapshot_isolation the server rolls such a transaction
// back, and it must begin again. Do begins again by itself.
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
			_, err := loser.ExecContext(t.Context(),
				`SELECT count(*) FROM `+s.ledger)
			require.NoError(t, err)
			_, err = s.do(t.Context(), "m")
			require.NoError(t, err)
			mark, err := strict.marks.MarkTx(t.Context(), loser, "m")
			var server *mysql.MySQLError
			require.ErrorAs(t, err, &server, "loser")
			assert.EqualValues(t, 1020, server.Number, "loser")
			assert.True(t, sqladapter.Retryable(err), "loser")
			assert.Equal(t, dedup.Unknown, mark.Outcome, "loser")
			// Another mark in a transaction that the server has ended is refused.
			var input *dedup.InputError
			_, err = strict.marks.MarkTx(t.Context(), loser, "n")
			require.ErrorAs(t, err, &input, "after that")
			assert.Equal(t, "tx", input.Field, "after that")
			s.wantMark(t, "n", false)
			strict.wantDone(t, "m")
		})
	}
}

// TestMariaDBRefuses: Migrate and Check refuse clientFoundRows, and Check refuses a table that is
// not in InnoDB.
func TestMariaDBRefuses(t *testing.T) {
	s := newShop(t, mariadb())
	found := openDB(t, "mysql", mariadbDSN(t, servertest.MariaDB(t), func(c *mysql.Config) {
		c.ClientFoundRows = true
	}))
	for name, call := range map[string]func(context.Context,
		*sql.DB) error{"Migrate": s.marks.Migrate, "Check": s.marks.Check} {
		err := call(t.Context(), found)
		assert.ErrorContains(t, err, "clientFoundRows", "%s with clientFoundRows", name)
		assert.NoError(t, call(t.Context(), s.db), name)
	}
	s.exec(t, `ALTER TABLE "`+s.table+`" ENGINE = MyISAM`)
	err := s.marks.Check(t.Context(), s.db)
	assert.ErrorContains(t, err, "InnoDB", "Check of MyISAM")
}

// TestMariaDBNoTransaction: a mark on a connection without a transaction is refused.
func TestMariaDBNoTransaction(t *testing.T) {
	s := newShop(t, mariadb())
	conn, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	var input *dedup.InputError
	_, err = s.marks.MarkTx(t.Context(), conn, "m")
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "tx", input.Field)
	_, err = s.marks.MarkBatchTx(t.Context(), conn,
		[]dedup.Request{{Key: "m"}})
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "tx", input.Field)
	s.wantMark(t, "m", false)
}

// TestMariaDBInFlight: a lock wait timeout is "in flight", for MarkTx and for Do.
func TestMariaDBInFlight(t *testing.T) {
	s := newShop(t, mariadb())
	_, err := s.marks.MarkTx(t.Context(), begin(t, s.db, sql.LevelDefault), "m")
	require.NoError(t, err)
	loser := *s
	loser.db = s.impatient(t)
	mark, err := s.marks.MarkTx(t.Context(), begin(t, loser.db, sql.LevelDefault), "m")
	assert.Equal(t, dedup.InFlight, mark.Outcome)
	assert.ErrorIs(t, err, dedup.ErrInFlight)
	assert.True(t, sqladapter.Retryable(err), "%v", err)
	mark, err = loser.do(t.Context(), "m")
	assert.Equal(t, dedup.InFlight, mark.Outcome)
	assert.ErrorIs(t, err, dedup.ErrInFlight)
}

// TestMariaDBIgnoredDeadlock: an effect continues after a deadlock as if nothing had happened.
// The server has rolled mark and effect back, and the later writes of the effect are in no
// transaction of ours. Do notices, rolls them back too, and runs the whole again.
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
	require.NoError(t, err)
	assert.True(t, mark.First(), "Do = %v", mark.Outcome)
	assert.Equal(t, 2, runs, "Do = %v", mark.Outcome)
	s.wantEffects(t, []string{"m"})
	var balance int
	err = s.db.QueryRowContext(t.Context(),
		`SELECT max(balance) FROM `+accounts).Scan(&balance)
	require.NoError(t, err)
	assert.Equal(t, 1, balance, "the largest balance")
	var autocommit bool
	err = s.db.QueryRowContext(t.Context(),
		`SELECT @@autocommit`).Scan(&autocommit)
	require.NoError(t, err)
	assert.True(t, autocommit, "the session came back with autocommit")
}

// deadlock makes tx the victim of a deadlock: the other transaction has written more.
func (s *shop) deadlock(t *testing.T, tx *sql.Tx, accounts string) {
	t.Helper()
	other := begin(t, s.db, sql.LevelDefault)
	add := func(tx *sql.Tx, id string) error {
		_, err := tx.ExecContext(t.Context(),
			`UPDATE `+accounts+` SET balance = balance + 1 WHERE id IN (`+id+`)`)
		return err
	}
	require.NoError(t, errors.Join(add(tx, "1"), add(other, "2")))
	for i := range 50 {
		_, err := other.ExecContext(t.Context(), `INSERT INTO `+accounts+` VALUES (?, 0)`,
			100+i)
		require.NoError(t, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		assert.NoError(t, errors.Join(add(other, "1"), other.Commit()), "the other transaction")
	})
	var server *mysql.MySQLError
	require.ErrorAs(t, add(tx, "2"), &server, "no deadlock")
	assert.EqualValues(t, 1213, server.Number, "no deadlock")
	wg.Wait()
}
