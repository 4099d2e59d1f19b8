package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// TestMariaDBSnapshotBeforeRotation: the snapshot of a transaction is older than a rotation. The
// transaction still finds the marks that came later in the table that is sealed now, with their
// results. A plain read does not show them.
func TestMariaDBSnapshotBeforeRotation(t *testing.T) {
	for _, level := range levels(sqladapter.MySQL) {
		t.Run(level.String(), func(t *testing.T) {
			s := newShop(t, inGenerations(mariadb()), func(c *sqladapter.Config) {
				c.Isolation = level
			})
			s.windowPassed(t, 1)
			late := begin(t, s.db, level)
			_, err := late.ExecContext(t.Context(), // takes the snapshot
				`SELECT window_ms FROM `+s.relation("_meta"))
			require.NoError(t, err)
			_, err = s.saves(t.Context(), "m", []byte("receipt"))
			require.NoError(t, err)
			s.rotate(t, true)
			s.wantFirst(t, "open", true)

			mark, err := s.marks.MarkTx(t.Context(), late, "m")
			require.NoError(t, err)
			assert.Equal(t, dedup.Duplicate, mark.Outcome, "late")
			assert.Equal(t, "receipt", string(mark.Result), "late")
			n, err := texts(late.QueryContext(t.Context(),
				`SELECT 1 FROM `+s.turn("_sealed")+` WHERE owner > 0`))
			require.NoError(t, err)
			assert.Equal(t, level != sql.LevelRepeatableRead, len(n) != 0,
				"a plain read shows %d marks", len(n))
			// InnoDB does not read a table that is younger than the snapshot.
			for _, batch := range [][]string{{"open"}, {"m", "new"}} {
				marks, err := s.marks.MarkBatchTx(t.Context(), late, requests(batch))
				assert.Equal(t, level == sql.LevelRepeatableRead, err != nil, "late, %q: %v", batch,
					marks)
				assert.False(t, err != nil && !sqladapter.Retryable(err), "late, %q: %v", batch,
					marks)
				assert.False(t, err == nil && marks[0].First(), "late, %q: %v", batch, marks)
			}
		})
	}
}

// TestMariaDBDuplicatesHoldNobodyUp: a duplicate of the sealed generation locks nothing in the open
// one, not even the gap where its row would be. At first all gaps there are wide.
func TestMariaDBDuplicatesHoldNobodyUp(t *testing.T) {
	for _, level := range levels(sqladapter.MySQL) {
		t.Run(level.String(), func(t *testing.T) {
			s := newShop(t, inGenerations(mariadb()), func(c *sqladapter.Config) {
				c.Isolation = level
			})
			s.windowPassed(t, 1)
			s.wantFirst(t, "old", true)
			s.rotate(t, true)
			mark, err := s.marks.MarkTx(t.Context(), begin(t, s.db, level), "old")
			require.NoError(t, err)
			require.Equal(t, dedup.Duplicate, mark.Outcome)
			other := *s
			other.db = s.impatient(t)
			for i := range 8 {
				mark, err := other.do(t.Context(), fmt.Sprint("new ", i))
				require.NoError(t, err, "next to a duplicate: %v", mark.Outcome)
				require.True(t, mark.First(), "next to a duplicate: %v", mark.Outcome)
			}
		})
	}
}

// TestMariaDBRotateAutocommitOff: a connection with autocommit off is left without a transaction.
// An open one would delay a rotation, and its rollback would undo the steps of a rotation.
func TestMariaDBRotateAutocommitOff(t *testing.T) {
	s := newShop(t, inGenerations(mariadb()))
	s.due(t, 0)
	off := *s
	off.db = openDB(t, "mysql", mariadbDSN(t, servertest.MariaDB(t), func(c *mysql.Config) {
		c.Params["autocommit"] = "0"
	}))
	off.db.SetMaxOpenConns(1)
	err := errors.Join(off.marks.Migrate(t.Context(), off.db),
		off.marks.Check(t.Context(), off.db))
	require.NoError(t, err)
	off.wantMark(t, "new 0", true)
	off.rotate(t, true)
	off.rotate(t, false)
	s.wantTables(t, 0)
	s.wantFirst(t, "old 0", false)
}

// mariadbWithoutLook marks in the open generation alone.
func (st *storm) mariadbWithoutLook(*testing.T) {
	st.rotate = func(ctx context.Context) (bool, error) { return st.marks.Rotate(ctx, st.db) }
	st.mark = func(ctx context.Context, _ int, tx *sql.Tx, message string) (bool, error) {
		return inserted(tx.ExecContext(ctx,
			`INSERT INTO `+st.turn("_open")+
				` (id, owner) VALUES (UNHEX(MD5(?)), 1) ON DUPLICATE KEY UPDATE id = id`, message))
	}
}

// mariadbWithoutLock opens the next generation and records that it is open. A worker that has read
// the number before continues in the last one.
func (st *storm) mariadbWithoutLock(t *testing.T) {
	table := func(number int) string { return fmt.Sprintf("%s_%d", st.ledger, number) }
	create := func(ctx context.Context, number int) error {
		_, err := st.db.ExecContext(ctx,
			`CREATE TABLE IF NOT EXISTS `+table(number)+` LIKE `+st.turn("_open"))
		return err
	}
	state := st.ledger + "_number"
	st.exec(t, `CREATE TABLE `+state+` AS SELECT 1 AS number, SYSDATE(6) AS opened`)
	for number := range 2 {
		require.NoError(t, create(t.Context(), number))
	}
	t.Cleanup(func() {
		st.exec(t, `DROP TABLE `+state)
		for number := range int(st.rotated.Load()) + 4 {
			st.exec(t, `DROP TABLE IF EXISTS `+table(number))
		}
	})
	due := fmt.Sprintf(` WHERE TIMESTAMPDIFF(MICROSECOND, opened, SYSDATE(6)) >= %d`,
		st.speech.window.Microseconds())
	st.rotate = func(ctx context.Context) (bool, error) {
		numbers, err := texts(st.db.QueryContext(ctx, `SELECT number FROM `+state+due))
		if err != nil || len(numbers) == 0 {
			return false, err
		}
		var number int
		if _, err := fmt.Sscan(numbers[0], &number); err != nil {
			return false, err
		}
		if err := create(ctx, number+1); err != nil {
			return false, err
		}
		return inserted(st.db.ExecContext(ctx,
			`UPDATE `+state+` SET number = number + 1, opened = SYSDATE(6)`+due+` AND number = ?`,
			number))
	}
	st.mark = func(ctx context.Context, _ int, tx *sql.Tx, message string) (bool, error) {
		number := 0
		// Some workers wait before they continue.
		if err := tx.QueryRowContext(ctx,
			`SELECT number + SLEEP(0.01 * (RAND() < 0.3)) FROM `+state).Scan(&number); err != nil {
			return false, err
		}
		return inserted(tx.ExecContext(ctx,
			`INSERT INTO `+table(number)+
				` (id, owner) SELECT b.id, 1 FROM (SELECT UNHEX(MD5(?)) AS id) AS b`+
				` LEFT JOIN `+table(number-1)+
				` AS p ON p.id = b.id WHERE p.id IS NULL ON DUPLICATE KEY UPDATE `+table(number)+
				`.id = `+table(number)+`.id`, message))
	}
}
