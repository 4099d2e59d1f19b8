package sql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

func (s *shop) wantVerdict(t *testing.T, message string, mark sqladapter.Mark,
	want sqladapter.CommitStatus) {
	t.Helper()
	got, err := s.marks.Confirm(t.Context(), s.db, message, mark)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// mark marks a message and its effect in a transaction that is still open.
func (s *shop) mark(t *testing.T, message string) (*sql.Tx, sqladapter.Mark) {
	t.Helper()
	tx := begin(t, s.db, sql.LevelDefault)
	mark, err := s.marks.MarkTx(t.Context(), tx, message)
	if err == nil {
		err = s.effect(t.Context(), tx, message)
	}
	require.NoError(t, err)
	require.True(t, mark.First(), "%q: %v", message, mark.Outcome)
	return tx, mark
}

// TestConfirm gets each answer of Confirm. Confirm leaves no mark behind.
func TestConfirm(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		tx, mark := s.mark(t, "m")
		require.NoError(t, tx.Rollback())
		s.wantVerdict(t, "m", mark, sqladapter.NotCommitted)
		s.wantVerdict(t, "m", mark, sqladapter.NotCommitted)
		s.wantMark(t, "m", false)
		tx, second := s.mark(t, "m")
		require.NoError(t, tx.Commit())
		s.wantVerdict(t, "m", second, sqladapter.Committed)
		s.wantVerdict(t, "m", mark, sqladapter.CommittedByAnother)

		tx = begin(t, s.db, sql.LevelDefault)
		marks, err := s.marks.MarkBatchTx(t.Context(),
			tx, []dedup.Request{{Key: "m"}, {Key: "n"}, {Key: "o"}})
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		s.wantVerdict(t, "n", marks[1], sqladapter.Committed)
		s.wantVerdict(t, "o", marks[2], sqladapter.Committed)
		s.wantEffects(t, []string{"m"})
		assert.Zero(t, s.db.Stats().InUse, "connections are still in a transaction")
	})
}

// lateCommit is a server that can be held inside COMMIT.
type lateCommit struct {
	*shop
	hold    func() (release func())
	waiting func() bool // whether somebody waits for the row of the mark
	holds   func() bool // whether COMMIT is held
}

// TestConfirmWaitsForCommit: while a backend is inside COMMIT, a plain read says that the
// mark is absent. Confirm waits, and says what is true in the end.
func TestConfirmWaitsForCommit(t *testing.T) {
	for name, server := range map[string]func(*testing.T) *lateCommit{"postgres": latePostgres,
		"mariadb": lateMariaDB} {
		t.Run(name, func(t *testing.T) {
			s := server(t)
			tx, mark := s.mark(t, "m")
			release := s.hold()
			committed := make(chan error, 1)
			go func() { committed <- tx.Commit() }()
			poll(t, "a COMMIT that is held", s.holds)

			s.wantMark(t, "m", false) // a plain read: absent, as if it had been rolled back
			type answer struct {
				status sqladapter.CommitStatus
				err    error
			}
			confirmed := make(chan answer, 1)
			go func() {
				status, err := s.marks.Confirm(t.Context(), s.db, "m", mark)
				confirmed <- answer{status, err}
			}()
			poll(t, "Confirm that waits for the row", s.waiting)
			select {
			case a := <-confirmed:
				t.Errorf("Confirm = %v, %v while COMMIT was under way", a.status, a.err)
			default:
			}
			release()
			require.NoError(t, <-committed)
			a := <-confirmed
			require.NoError(t, a.err)
			assert.Equal(t, sqladapter.Committed, a.status)
			s.wantMark(t, "m", true)
		})
	}
}

// latePostgres has a deferred trigger, which runs inside COMMIT and waits for a lock.
func latePostgres(t *testing.T) *lateCommit {
	const lock = 7002
	s := newShop(t, postgres("cache_statement"))
	function := servertest.Prefix(t) + "_held"
	s.exec(t, `CREATE FUNCTION `+function+`() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_advisory_xact_lock_shared(7002, hashtext(TG_NAME)); RETURN NULL; END'`)
	t.Cleanup(func() { s.exec(t, `DROP FUNCTION `+function+` CASCADE`) })
	s.exec(t, `CREATE CONSTRAINT TRIGGER `+function+` AFTER INSERT ON `+s.ledger+
		` DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION `+function+`()`)
	count := func(where string) bool {
		var n int
		err := s.db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l USING (pid)
			WHERE NOT l.granted AND `+where).Scan(&n)
		require.NoError(t, err)
		return n > 0
	}
	return &lateCommit{
		shop: s,
		hold: func() func() {
			holder := begin(t, s.db, sql.LevelDefault)
			_, err := holder.ExecContext(t.Context(),
				`SELECT pg_advisory_xact_lock($1::int, hashtext($2))`, lock, function)
			require.NoError(t, err)
			return func() { _ = holder.Rollback() }
		},
		holds: func() bool {
			return count(`l.locktype = 'advisory' AND l.classid = 7002 AND lower(a.query) = 'commit'`)
		},
		waiting: func() bool {
			return count(`l.locktype = 'transactionid' AND a.query LIKE '%` + s.table + `%'`)
		},
	}
}

// lateMariaDB has a backup that blocks commits, on a server of its own.
func lateMariaDB(t *testing.T) *lateCommit {
	server := servertest.Private(t, servertest.KindMariaDB)
	open := func(t *testing.T) *sql.DB {
		return openDB(t, "mysql", mariadbDSN(t, server.Addr, nil))
	}
	s := newShop(t, engine{name: "mariadb", dialect: sqladapter.MySQL, open: open})
	admin, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	stage := func(name string) {
		_, err := admin.ExecContext(context.WithoutCancel(t.Context()),
			`BACKUP STAGE `+name)
		require.NoError(t, err)
	}
	count := func(query string) bool {
		var n int
		require.NoError(t, s.db.QueryRowContext(t.Context(), query).Scan(&n))
		return n > 0
	}
	return &lateCommit{
		shop: s,
		hold: func() func() {
			for _, name := range []string{"START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"} {
				stage(name)
			}
			return func() { stage("END") }
		},
		holds: func() bool {
			return count(`SELECT count(*) FROM information_schema.processlist WHERE info = 'COMMIT' AND state LIKE 'Waiting%'`)
		},
		waiting: func() bool {
			// Not innodb_trx: InnoDB does not refresh it while it is read often.
			return count(`SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_row_lock_current_waits'`)
		},
	}
}

// TestConfirmUndecided: a call of Confirm that stops waiting returns Undecided and an error.
func TestConfirmUndecided(t *testing.T) {
	for name, e := range map[string]engine{"postgres": postgres("cache_statement"),
		"mariadb": mariadb()} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, e)
			_, mark := s.mark(t, "m")
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			status, err := s.marks.Confirm(ctx, s.db, "m", mark)
			assert.Equal(t, sqladapter.Undecided, status)
			assert.Error(t, err)
			impatient := *s
			impatient.db = s.impatient(t)
			status, err = impatient.marks.Confirm(t.Context(), impatient.db,
				"m", mark)
			assert.Equal(t, sqladapter.Undecided, status)
			assert.ErrorIs(t, err, dedup.ErrInFlight)
		})
	}
}

// impatient is a pool whose lock timeout is short.
func (s *shop) impatient(t *testing.T) *sql.DB {
	if s.dialect == sqladapter.Postgres {
		return openDB(t, "pgx", servertest.Postgres(t)+"&lock_timeout=20")
	}
	return openDB(t, "mysql", mariadbDSN(t, servertest.MariaDB(t), func(c *mysql.Config) {
		c.Params["innodb_lock_wait_timeout"] = "0" // does not wait at all
	}))
}
