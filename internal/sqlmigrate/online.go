package sqlmigrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/sqlerr"
)

// A version that changes an index of a table in use is applied online: none of its statements holds
// up programs that read and write the table. The statements tell which versions these are.
//
//	PostgreSQL   CREATE or DROP INDEX CONCURRENTLY, which refuses to run in a transaction
//	MySQL        ALTER TABLE ... LOCK=NONE, which waits for the transactions that have named the
//	             table, while all others queue behind it
//
// PostgreSQL runs such a version statement by statement, between two short transactions under the
// lock of migrations: the first finds that the version is missing, the second records it. Nothing
// is locked in between, so two processes may do the same at once, and a process may die. CREATE
// INDEX CONCURRENTLY that was cut off leaves an invalid index of that name, so a DROP INDEX
// CONCURRENTLY IF EXISTS comes before it. It has no IF NOT EXISTS, which would take an index that
// another process still builds, and may never finish, for one that serves. Where statements of two
// processes meet, a process begins again with its first one: it may have dropped what the other has
// built and recorded, so it ends only when its own index is built.
//
// MySQL asks for the lock of the table with a wait of a second, lets the others go on, and tries
// again.
const (
	concurrently = " CONCURRENTLY"
	lockNone     = "LOCK=NONE"
)

const (
	// onlineTries is how often MySQL is asked for the lock of a table.
	onlineTries = 10
	// onlineWait is the shortest wait that MySQL knows, in seconds.
	onlineWait = 1
)

// onlinePause lets statements that have queued behind a try continue.
var onlinePause = backoff.Policy{Kind: backoff.Equal, Base: 500 * time.Millisecond,
	Cap: 4 * time.Second}

// outside reports whether the statements have to run outside of a transaction.
func outside(statements []string) bool {
	return slices.ContainsFunc(statements, func(s string) bool {
		return strings.Contains(s, concurrently)
	})
}

// withoutBuilding leaves out the statements that build an index, which are useless on the way to
// version zero: the table is dropped, too.
func withoutBuilding(statements []string) []string {
	return slices.DeleteFunc(slices.Clone(statements), func(s string) bool {
		return strings.Contains(s, "CREATE INDEX"+concurrently) ||
			strings.Contains(s, lockNone) && strings.Contains(s, "ADD INDEX")
	})
}

// atOnce turns statements into statements for new, empty tables, which can run in any transaction.
func atOnce(statements []string) []string {
	statements = slices.Clone(statements)
	for i, s := range statements {
		statements[i] = strings.ReplaceAll(s, concurrently, "")
	}
	return statements
}

// since matches the comment that keeps a statement away from older servers of PostgreSQL.
var since = regexp.MustCompile(`(?m)^-- Only since server_version_num ([0-9]{6})\.?$`)

// applyOutside runs the statements of a version of PostgreSQL one by one.
func (m *Migrations) applyOutside(ctx context.Context, conn *sql.Conn, step next) error {
	var server int
	const ask = `SELECT current_setting('server_version_num')::int`
	if err := conn.QueryRowContext(ctx, ask).Scan(&server); err != nil {
		return err
	}
	return patiently(ctx, metAnother, func() error {
		for _, statement := range step.statements {
			if part := since.FindStringSubmatch(statement); part != nil {
				least, err := strconv.Atoi(part[1])
				if err != nil || server < least {
					continue
				}
			}
			if _, err := conn.ExecContext(ctx, bare(statement)); err != nil {
				return err
			}
		}
		return nil
	})
}

// metAnother reports that two processes have dropped or created the same index at once: "tuple
// concurrently updated", a deadlock, or an index that is there already.
func metAnother(err error) bool {
	switch sqlerr.State(err) {
	case "XX000", "40P01", "42P07":
		return true
	}
	return false
}

// execer is *sql.Conn or *sql.Tx.
type execer interface {
	Queryer
	// ExecContext is that of *sql.DB.
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// exec runs a statement of a version. With MySQL it repeatedly asks for the lock of a table that
// the statement needs for a short time.
func (m *Migrations) exec(ctx context.Context, tx execer, statement string) error {
	if !m.engine.transact || !strings.Contains(statement, lockNone) {
		_, err := tx.ExecContext(ctx, bare(statement))
		return err
	}
	var was int64
	if err := tx.QueryRowContext(ctx,
		`SELECT @@SESSION.lock_wait_timeout`).Scan(&was); err != nil {
		return err
	}
	set := func(ctx context.Context, seconds int64) error {
		_, err := tx.ExecContext(ctx,
			fmt.Sprintf(`SET SESSION lock_wait_timeout = %d`, seconds))
		return err
	}
	if err := set(ctx, onlineWait); err != nil {
		return err
	}
	err := patiently(ctx, sqlerr.Waited, func() error {
		_, err := tx.ExecContext(ctx, bare(statement))
		return err
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTime)
	defer cancel()
	if failed := set(ctx, was); err == nil {
		err = failed
	}
	return err
}

// patiently repeats work, after a pause, while its error says that others were in the way.
func patiently(ctx context.Context, inTheWay func(error) bool, work func() error) (err error) {
	for try := range onlineTries {
		if try > 0 {
			if cause := backoff.Sleep(ctx, onlinePause.Delay(try-1, 0, nil)); cause != nil {
				return errors.Join(cause, err)
			}
		}
		if err = work(); err == nil || !inTheWay(err) {
			return err
		}
	}
	return fmt.Errorf("others have used the table, %d times: %w", onlineTries, err)
}
