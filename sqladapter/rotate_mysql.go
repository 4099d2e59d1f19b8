package sqladapter

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// DDL of MySQL commits by itself, so a rotation that dies leaves some of its steps done. Marks do
// not notice, and the next call continues from there:
//
//	next is made            it is dropped and made again
//	the tables are renamed  how old the open one is, is not on record: it counts as new
//	that is on record       what is gone has not been dropped: it is

const (
	// rotatorSettings are for the session. A second is the shortest wait that MySQL knows.
	// lock_wait_timeout bounds the wait for transactions that use a table, innodb_lock_wait_timeout
	// the wait for prepared XA transactions that have lost their session. wait_timeout ends a
	// session whose client has stopped between two steps, and releases its lock; it is longer than
	// the longest pause.
	rotatorSettings = `SET SESSION autocommit = 1, lock_wait_timeout = 1, innodb_lock_wait_timeout = 1, wait_timeout = 30`
	// sampled is how many marks are read in search of a new one. Ids are digests, so the first ones
	// in their order are a random sample. With a window of a week, half a minute of new marks is
	// enough for one to be in the sample.
	sampled = 20_000
)

// step is how far the open generation has come.
type rotationStep struct {
	// dated says that the time of its opening is on record.
	dated bool
	// due says that the generation is a window old, and that one of its marks is a window younger
	// than it.
	due bool
	// litter says that the generation named gone was not dropped yet.
	litter bool
}

// rotateMySQL is rotate for tables that keep their names. It does everything in one session, which
// holds a lock that admits one rotator at a time. Under that lock it checks again whether there is
// anything to do.
func (m *Ledger) rotateMySQL(ctx context.Context, db *sql.DB, window time.Duration) (sealed bool,
	err error) {
	t := newNameCycle(m.table)
	var s rotationStep
	err = m.alone(ctx, db, func(q Tx) error {
		s, err = m.step(ctx, q, t, window)
		return err
	})
	if err != nil || s == (rotationStep{dated: true}) {
		return false, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer discard(conn) // nobody else wants its settings
	if _, err := conn.ExecContext(ctx, rotatorSettings); err != nil {
		return false, err
	}
	mine := false
	if err := scanOne(ctx, conn, `SELECT COALESCE(GET_LOCK(`+m.rotatorLock()+`, 0), 0)`,
		&mine); err != nil || !mine {
		return false, err
	}
	defer m.releaseRotator(ctx, conn)
	if s, err = m.step(ctx, conn, t, window); err != nil {
		return false, err
	}
	return m.advance(ctx, conn, t, s)
}

// advance finishes what another rotator has left undone, and seals when it is due.
func (m *Ledger) advance(ctx context.Context, conn *sql.Conn, t nameCycle,
	s rotationStep) (sealed bool,
	err error) {
	var steps []string
	if !s.dated {
		steps = append(steps, t.date())
	}
	if s.litter {
		steps = append(steps, t.drop(t.gone))
	}
	if err := execAll(ctx, conn, steps); err != nil || !s.due {
		return false, err
	}
	if err := execAll(ctx, conn, t.preparing()); err != nil {
		return false, err
	}
	err = patiently(ctx, func(int) error { return execAll(ctx, conn, []string{t.rename()}) })
	if err != nil {
		return false, err
	}
	return true, execAll(ctx, conn, []string{t.date(), t.drop(t.gone)})
}

// step reads the sealed table, too, so that it fails when that table is missing: nothing may be
// dropped then.
func (m *Ledger) step(ctx context.Context, q Tx, t nameCycle, window time.Duration) (s rotationStep,
	err error) {
	var opened, now, litter int64
	if err := scanOne(ctx, q, m.stepText(t), &opened, &now, &litter); err != nil {
		return rotationStep{}, err
	}
	s = rotationStep{dated: opened > 0, litter: litter > 0}
	end := opened + windowMillis(window)
	if !s.dated || min(now, time.Now().UnixMilli()) < end { // both clocks must agree that it is old
		return s, nil
	}
	var newest int64
	err = scanOne(ctx, q, t.newest(), &newest)
	s.due = newest >= end
	return s, err
}

func (m *Ledger) stepText(t nameCycle) string {
	return `SELECT COALESCE((SELECT created_at FROM ` + t.open.marks + ` WHERE id = ` + birth +
		`), 0), ` + mysqlNow + `,` +
		` (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = ` +
		mysqlSchema(m.table) +
		` AND table_name IN ('` + bareName(t.gone.marks) + `', '` +
		bareName(t.gone.results) + `'))` +
		` + 0 * (SELECT COUNT(*) FROM ` + t.sealed.marks + ` WHERE id = ` + birth + `)`
}

func (t nameCycle) newest() string {
	return fmt.Sprintf(`SELECT COALESCE(MAX(created_at), 0) FROM (SELECT created_at FROM %s FORCE INDEX (PRIMARY) ORDER BY id LIMIT %d) AS s`,
		t.open.marks, sampled)
}

// date records now as the opening time of the open generation, if none is on record.
func (t nameCycle) date() string {
	return `INSERT INTO ` + t.open.marks + ` (id, owner) VALUES (` +
		birth + `, 0) ON DUPLICATE KEY UPDATE id = id`
}

func (nameCycle) drop(s tablePair) string {
	return `DROP TABLE IF EXISTS ` + s.marks + `, ` + s.results
}

func (t nameCycle) preparing() []string {
	return []string{
		t.drop(t.next),
		`CREATE TABLE ` + t.next.marks + ` LIKE ` + t.open.marks,
		`CREATE TABLE ` + t.next.results + ` LIKE ` + t.open.results,
	}
}

// rename is atomic, even when the server crashes.
func (t nameCycle) rename() string {
	moves := []tablePair{t.sealed, t.gone, t.open, t.sealed, t.next, t.open}
	var parts []string
	for i := 0; i < len(moves); i += 2 {
		from, to := moves[i], moves[i+1]
		parts = append(parts, from.marks+` TO `+to.marks, from.results+` TO `+to.results)
	}
	return `RENAME TABLE ` + strings.Join(parts, `, `)
}

func execAll(ctx context.Context, conn *sql.Conn, statements []string) error {
	for _, text := range statements {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// rotatorLock returns the name of a lock of the server, for all its databases.
func (m *Ledger) rotatorLock() string {
	return `CONCAT('onceward rotate ', LEFT(SHA2(LOWER(CONCAT(` + mysqlSchema(m.table) + `, '.` +
		m.table.name + `')), 256), 32))`
}

// releaseRotator releases the lock before the session is closed, because the server may notice the
// closing later.
func (m *Ledger) releaseRotator(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitGrace)
	defer cancel()
	_, _ = conn.ExecContext(ctx, `DO RELEASE_LOCK(`+m.rotatorLock()+`)`)
}
