package sql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/sqladapter"
)

// intercepted returns the same shop over connections whose statements pass through intercept.
func (s *shop) intercepted(t *testing.T, intercept interceptor) *shop {
	t.Helper()
	other := *s
	other.db = openIntercepted(t, "mysql", mariadbDSN(t, servertest.MariaDB(t), nil), intercept)
	return &other
}

// due makes a rotation due: "old" is a window older than "new".
func (s *shop) due(t *testing.T, round int) {
	t.Helper()
	s.wantFirst(t, fmt.Sprint("old ", round), true)
	s.windowPassed(t, 0)
	s.wantFirst(t, fmt.Sprint("new ", round), true)
}

// TestMariaDBRotatorDies: a rotator dies after each of its statements, which commit one by one.
// Marks continue at once, nothing is forgotten early, and the next call finishes the rotation.
func TestMariaDBRotatorDies(t *testing.T) {
	t.Parallel()
	s := newShop(t, inGenerations(mariadb()))
	var steps []string
	die, dead := -1, false
	rotator := s.intercepted(t, func(what string, do func() error) error {
		if dead {
			return driver.ErrBadConn // it sends nothing more
		}
		err := do()
		if dead = len(steps) == die; dead {
			err = driver.ErrBadConn
		}
		steps = append(steps, what)
		return err
	})
	s.due(t, -1)
	rotator.rotate(t, true)
	all := slices.Clone(steps)
	t.Logf("%d statements: %s", len(all), strings.Join(all, ", "))
	require.True(t, slices.ContainsFunc(all, func(step string) bool {
		return strings.Contains(step, "RENAME")
	}), "nothing is renamed")
	for die = range all {
		s.due(t, die)
		steps = nil
		// The last answer is not waited for.
		_, err := rotator.marks.Rotate(t.Context(),
			rotator.db)
		assert.Equal(t, die == len(all)-1, err == nil, "died after %q", all[die])
		assert.False(t, err != nil && !sqladapter.Retryable(err), "died after %q", all[die])
		dead = false
		s.wantFirst(t, fmt.Sprint("after ", die), true)
		s.wantFinished(t)
		for range 2 {
			s.rotate(t, false)
		}
		for _, message := range []string{"old ", "new ", "after "} {
			s.wantFirst(t, fmt.Sprint(message, die), false)
		}
	}
}

// wantFinished calls Rotate until nothing is left of a rotation that has begun. The server frees
// the lock of a rotator that has died when it notices.
func (s *shop) wantFinished(t *testing.T) {
	t.Helper()
	poll(t, "a rotation to be finished", func() bool {
		_, err := s.marks.Rotate(t.Context(), s.db)
		require.NoError(t, err)
		dated, err := texts(s.db.QueryContext(t.Context(),
			`SELECT 1 FROM `+s.turn("_open")+` WHERE owner = 0 AND created_at > `+
				`TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 - 3600000`))
		return err == nil && len(dated) == 1 && len(s.relations(t, "r")) == 4
	})
	s.wantTables(t, 0)
}

// whileRenaming calls Rotate and, when its RENAME waits for a lock, then. Once a RENAME has failed
// after that, it returns Rotate's error. A RENAME waits for one second: on a slow machine Rotate
// may give up before waitForRename has seen it, and is then called again.
func (s *shop) whileRenaming(t *testing.T, then func()) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var over atomic.Bool
	stop := func() {}
	rotator := s.intercepted(t, func(what string, do func() error) error {
		err := do()
		if strings.Contains(what, "RENAME") {
			assert.Error(t, err, "RENAME has not waited")
			if over.Load() {
				stop()
			}
		}
		return err
	})
	answer := make(chan error, 1)
	go func() {
		for {
			one, end := context.WithCancel(ctx)
			stop = end
			_, err := rotator.marks.Rotate(one, rotator.db)
			end()
			inVain := err == nil || sqlerr.MySQL(err) == lockWaited &&
				!errors.Is(err, context.Canceled)
			if !inVain || t.Failed() || ctx.Err() != nil {
				answer <- err
				return
			}
		}
	}()
	s.waitForRename(t)
	then()
	over.Store(true)
	return <-answer
}

// lockWaited is the error of MariaDB for a session that has waited for a lock in vain.
const lockWaited = 1205

func (s *shop) waitForRename(t *testing.T) (session int) {
	t.Helper()
	poll(t, "RENAME to wait", func() bool {
		err := s.db.QueryRowContext(t.Context(),
			`SELECT id FROM information_schema.processlist WHERE info LIKE CONCAT('RENAME TABLE%', ?, '%')`, s.table).Scan(&session)
		require.False(t, err != nil && !errors.Is(err, sql.ErrNoRows), "%v", err)
		return err == nil
	})
	return session
}

// TestMariaDBHangingTransaction: a transaction that has marked and does not end keeps its
// generation open. Marks wait for a second at most. The same holds for an XA transaction that has
// lost its session.
func TestMariaDBHangingTransaction(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]func(t *testing.T, s *shop) (end func()){
		"open": func(t *testing.T, s *shop) func() {
			tx := begin(t, s.db, sql.LevelDefault)
			_, err := s.marks.MarkTx(t.Context(), tx, "hanging")
			require.NoError(t, err)
			return func() {
				assert.NoError(t, tx.Commit())
			}
		},
		"prepared": func(t *testing.T, s *shop) func() {
			conn, err := s.db.Conn(t.Context())
			require.NoError(t, err)
			exec := func(query string) {
				_, err := conn.ExecContext(t.Context(), query)
				require.NoError(t, err)
			}
			exec(`XA START '` + s.table + `'`)
			_, err = s.marks.MarkTx(t.Context(), conn, "hanging")
			require.NoError(t, err)
			exec(`XA END '` + s.table + `'`)
			exec(`XA PREPARE '` + s.table + `'`)
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
			return func() { s.exec(t, `XA COMMIT '`+s.table+`'`) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, inGenerations(mariadb()))
			s.due(t, 0)
			end := hang(t, s)
			err := s.whileRenaming(t, func() {
				began := time.Now()
				mark, err := s.do(t.Context(), "beside it")
				require.NoError(t, err)
				assert.True(t, mark.First(), "a mark while RENAME waits: %v", mark.Outcome)
				// a second, and the rest for a slow machine
				assert.LessOrEqual(t, time.Since(began), 20*time.Second)
			})
			assert.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, lockWaited, sqlerr.MySQL(err))
			s.wantFirst(t, "old 0", false)
			end()
			s.rotate(t, true)
			for _, message := range []string{"hanging", "old 0", "new 0", "beside it"} {
				s.wantFirst(t, message, false)
			}
			s.wantTables(t, 0)
		})
	}
}

// TestMariaDBRotatorKilled: the session of a rotator is killed while its RENAME waits. The
// transaction that it waits for continues meanwhile, and does not wait for it.
func TestMariaDBRotatorKilled(t *testing.T) {
	s := newShop(t, inGenerations(mariadb()))
	s.due(t, 0)
	hanging := begin(t, s.db, sql.LevelDefault)
	_, err := s.marks.MarkTx(t.Context(), hanging, "hanging")
	require.NoError(t, err)
	err = s.whileRenaming(t, func() {
		marks, err := s.marks.MarkBatchTx(t.Context(),
			hanging, requests([]string{"old 0", "new 0", "more"}))
		require.NoError(t, err)
		require.False(t, marks[0].First(), "the transaction that is waited for: %v", marks)
		require.False(t, marks[1].First(), "the transaction that is waited for: %v", marks)
		assert.True(t, marks[2].First(), "the transaction that is waited for: %v", marks)
		err = s.marks.SaveResultTx(t.Context(), hanging, "more",
			[]byte("receipt"))
		assert.NoError(t, err)
		// the session of RENAME may have changed since the query
		poll(t, "the session of RENAME to be killed", func() bool {
			_, err := s.db.ExecContext(t.Context(), fmt.Sprint(`KILL `, s.waitForRename(t)))
			return err == nil
		})
	})
	assert.True(t, sqladapter.Retryable(err), "%v", err)
	assert.NotEqual(t, lockWaited, sqlerr.MySQL(err))
	require.NoError(t, hanging.Commit())
	s.wantFirst(t, "after", true)
	s.wantFinished(t)
	for _, message := range []string{"hanging", "old 0", "new 0", "more", "after"} {
		s.wantFirst(t, message, false)
	}
}

// TestMariaDBDropBlocked: a generation that a session still reads is dropped later. Until then
// nothing is sealed, and marks continue.
func TestMariaDBDropBlocked(t *testing.T) {
	t.Parallel()
	s := newShop(t, inGenerations(mariadb()))
	s.due(t, 0)
	var reader *sql.Tx
	rotator := s.intercepted(t, func(what string, do func() error) error {
		err := do()
		if strings.Contains(what, "RENAME") && err == nil {
			reader = begin(t, s.db, sql.LevelDefault)
			_, err = reader.ExecContext(t.Context(), `SELECT count(*) FROM `+s.turn("_gone"))
		}
		return err
	})
	sealed, err := rotator.marks.Rotate(t.Context(), rotator.db)
	assert.True(t, sealed, "%v", sealed)
	assert.True(t, sqladapter.Retryable(err), "%v", err)
	mark, err := s.do(t.Context(), "old 0")
	require.NoError(t, err)
	assert.Equal(t, dedup.Duplicate, mark.Outcome, "a mark next to it")
	require.NoError(t, reader.Rollback())
	s.rotate(t, false)
	s.wantTables(t, 0)
}
