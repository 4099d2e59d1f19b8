package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/sqlerr"
)

const (
	// lockTries is how often Rotate asks for a lock before it gives up. The first try waits
	// lockWait, and each next one twice as long, in case transactions that mark always take longer.
	// Marks that come meanwhile wait behind it.
	lockTries = 4
	lockWait  = 50 * time.Millisecond
	// frozen is how long a rotator may stop between two statements before the server ends its
	// transaction, which holds the lock that every mark needs.
	frozen = time.Second
)

// lockPause is several times lockWait, so that the marks that waited behind a rotation can go on.
var lockPause = backoff.Policy{Kind: backoff.Equal, Base: 500 * time.Millisecond,
	Cap: 4 * time.Second}

// Rotate is what [Ledger.DeleteExpired] is for tables with [Generations]: call it from time to
// time, several times in a window, from one process or from all. It opens a new generation when the
// present one is a window old, and reports whether it has. It drops the generations that marks no
// longer look at.
//
// A mark is kept for at least one window after its transaction ended, and for at most two windows
// plus the time between two calls of Rotate. The window is the table's, as in DeleteExpired. Rotate
// uses the database's clock or this process's, whichever is behind, and waits while there are no
// marks: it seals a generation only when one of its marks is a window younger than the generation.
// So when the consumers were down for longer than the window, the marks they will need are still
// there.
//
// To seal a generation Rotate needs a moment without any open transaction that has marked in it. It
// waits 50 ms for that moment, and other marks wait behind it. Then it gives up, lets them go on,
// and tries again, three times, waiting twice as long each time. With MySQL it waits a second each
// time, which is the shortest wait that MySQL knows. A mark whose own lock_timeout is shorter than
// that may get [dedup.ErrInFlight]. When a transaction is left open, or a backup runs for hours,
// nothing is sealed, and marks go on; the error is [Retryable], and the next call tries again.
//
// All of a rotation is one transaction in PostgreSQL: a rotator that dies leaves nothing half done.
// When one freezes, the server ends its transaction after a second. In MySQL the steps commit one
// by one. Marks do not notice when a rotator dies in between, and the next call finishes what it
// has begun; a backup that reads without locks (mysqldump --single-transaction) may have to be
// repeated when a rotation comes in between.
//
// With PostgreSQL the role that calls it must own the tables and the views, or be a member of the
// role that does, and needs CREATE in the schema. The new tables get the owner and the rights of
// the old ones, in the same transaction; rights on single columns are not copied. [Ledger.Check]
// reports what would prevent the owner from rotating. With MySQL rights belong to names and stay;
// the rotator needs CREATE, ALTER, DROP, INSERT and SELECT for the schema, or for the names. Rotate
// returns an error with another retention, and for a table whose recorded window is forever. It
// takes two round trips while nothing is due.
func (m *Ledger) Rotate(ctx context.Context, db *sql.DB) (sealed bool, err error) {
	switch {
	case m.ready() != nil:
		return false, m.ready()
	case db == nil:
		return false, inputError("db", "is nil")
	case m.retention != Generations:
		return false, inputError("Retention", "is "+m.retention.text()+"; call DeleteExpired")
	}
	window, err := m.enforcedWindow(ctx, db)
	if err != nil {
		return false, err
	}
	rotate := m.rotate
	if m.generations == nil {
		rotate = m.rotateMySQL
	}
	if sealed, err = rotate(ctx, db, window); err != nil {
		return sealed, fmt.Errorf("sqladapter: rotate %s: %w", m.table.full,
			sqlerr.NeedsRight(err, toRotate))
	}
	return sealed, nil
}

// rotate drops old generations even when it cannot seal.
func (m *Ledger) rotate(ctx context.Context, db *sql.DB, window time.Duration) (sealed bool,
	err error) {
	var number, oldest, opened, now int64
	state := `SELECT generation, oldest, opened_ms, ` + postgresNow + ` FROM ` + m.table.state
	if err := db.QueryRowContext(ctx, state).Scan(&number, &oldest, &opened, &now); err != nil {
		return false, err
	}
	end := opened + windowMillis(window)
	// both clocks must agree that a generation is old: see DeleteExpired
	due := min(now, time.Now().UnixMilli()) >= end
	if due {
		due, err = m.hasMarkSince(ctx, db, number, end)
	}
	if due {
		sealed, err = m.briefly(ctx, db, func(tx *sql.Tx) (bool, error) {
			return m.seal(ctx, tx, number)
		})
	}
	if sealed || oldest < number-1 {
		err = errors.Join(err, m.dropNotAttempted(ctx, db))
	}
	return sealed, err
}

// hasMarkSince is also false when another process has sealed the generation.
func (m *Ledger) hasMarkSince(ctx context.Context, db *sql.DB, number, ms int64) (bool, error) {
	for _, pages := range tails {
		var newest int64
		err := db.QueryRowContext(ctx,
			newestMark(m.table.generation(number).open, pages)).Scan(&newest)
		if sqlerr.NoTable(err) {
			return false, nil
		}
		if err != nil || newest >= ms {
			return err == nil, err
		}
	}
	return false, nil
}

// tails says how many pages at the end of a table are read to find a new mark. Nothing is ever
// deleted from the table, so new marks are at its end. But a table with many writers grows by up to
// 512 pages at once, which are then filled in any order.
var tails = [...]int{64, 1024}

// newestMark returns a query for the time of the newest mark in the last pages of a table, in ms.
// There is no index by age.
func newestMark(table string, pages int) string {
	return fmt.Sprintf(`SELECT coalesce(max(stamp >> 20), 0) FROM %s WHERE ctid >= (SELECT format('(%%s,0)', greatest(`+
		`pg_relation_size('%s') / current_setting('block_size')::bigint - %d, 0))::tid)`,
		table, table, pages)
}

// briefly runs work in a transaction that waits only briefly for locks.
func (m *Ledger) briefly(ctx context.Context, db *sql.DB,
	work func(tx *sql.Tx) (bool, error)) (done bool, err error) {
	err = patiently(ctx, func(try int) error {
		done, err = m.bounded(ctx, db, lockWait<<try, work)
		return err
	})
	return done, err
}

// patiently runs work, and runs it again after a pause when it has waited for a lock in vain.
func patiently(ctx context.Context, work func(try int) error) (err error) {
	for try := range lockTries {
		if try > 0 {
			if cause := backoff.Sleep(ctx, lockPause.Delay(try-1, 0, nil)); cause != nil {
				return because(cause, err)
			}
		}
		if err = work(try); !sqlerr.Waited(err) {
			return err
		}
	}
	return fmt.Errorf("other transactions have held a lock, %d times: %w", lockTries, err)
}

func (m *Ledger) bounded(ctx context.Context, db *sql.DB, wait time.Duration,
	work func(tx *sql.Tx) (bool, error)) (bool, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: m.dialect.weakest})
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	for _, text := range []string{
		fmt.Sprintf(`SET LOCAL lock_timeout = %d`, wait.Milliseconds()),
		fmt.Sprintf(`SET LOCAL idle_in_transaction_session_timeout = %d`, frozen.Milliseconds()),
	} {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return false, err
		}
	}
	done, err := work(tx)
	if err != nil || !done {
		return false, err
	}
	return true, tx.Commit()
}

// seal opens the next generation. It returns false when another process has done so, or is doing
// so.
//
// The views come first, in the order in which they are read. So a reader that holds a view and
// wants a table never meets a rotator that holds the table and wants the view. The clock is read
// after the transactions of all marks in the sealed generation have ended.
func (m *Ledger) seal(ctx context.Context, tx *sql.Tx, number int64) (bool, error) {
	found := 0
	turn := fmt.Sprintf(`SELECT 1 FROM %s WHERE generation = %d FOR UPDATE SKIP LOCKED`,
		m.table.state, number)
	if err := tx.QueryRowContext(ctx, turn).Scan(&found); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		return false, err
	}
	for _, text := range m.sealing(number) {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (m *Ledger) sealing(number int64) []string {
	t := m.table
	next, last := t.generation(number+1), t.generation(number)
	like := func(table, model string) string {
		return `CREATE TABLE ` + table + ` (LIKE ` + model +
			` INCLUDING ALL) WITH (autovacuum_enabled = false)`
	}
	return []string{
		like(next.open, last.open),
		like(next.results, last.results),
		carryGrants(last.open, next.open),
		carryGrants(last.results, next.results),
		postgresMarksView(t, next.open, last.open),
		postgresResultsView(t, next, last),
		`ALTER TABLE ` + last.open + ` RENAME TO ` + t.sealedBare(number),
		fmt.Sprintf(`UPDATE %s SET generation = %d, opened_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint`, t.state, next.number),
	}
}

// carryGrants gives a new table exactly the owner and the rights of the table that it replaces: it
// revokes rights from ALTER DEFAULT PRIVILEGES that the old table does not have. When the old owner
// may not create tables in the schema, the rotator stays the owner, and the old owner gets its
// rights by a grant. Rights on single columns are not copied.
func carryGrants(from, to string) string {
	return `DO $onceward$ DECLARE old pg_class%ROWTYPE; r record; BEGIN` +
		` SELECT * INTO old FROM pg_class WHERE oid = '` + from + `'::regclass;` +
		` IF has_schema_privilege(old.relowner, old.relnamespace, 'CREATE') THEN` +
		` EXECUTE 'ALTER TABLE ` + to +
		` OWNER TO ' || quote_ident(pg_get_userbyid(old.relowner)); END IF;` +
		` FOR r IN SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS who` +
		` FROM pg_class AS n, aclexplode(n.relacl) AS a WHERE n.oid = '` + to +
		`'::regclass AND a.grantee <> n.relowner LOOP` +
		` EXECUTE 'REVOKE ALL ON TABLE ` + to + ` FROM ' || r.who; END LOOP;` +
		` FOR r IN SELECT a.privilege_type AS what, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS who,` +
		` CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option FROM pg_class AS n,` +
		` aclexplode(coalesce(old.relacl, acldefault('r', old.relowner))) AS a WHERE n.oid = '` +
		to + `'::regclass AND a.grantee <> n.relowner LOOP` +
		` EXECUTE 'GRANT ' || r.what || ' ON TABLE ` +
		to + ` TO ' || r.who || r.option; END LOOP; END $onceward$`
}

// toRotate is what a role needs for a rotation.
const toRotate = "to own the tables and views of marks, as itself or as a member of the role that does, and CREATE in the schema"

// mayRotate returns a query for what would prevent the owner of the views from rotating; it answers
// with an empty text when nothing does.
func (t tableName) mayRotate(number int64) string {
	g := t.generation(number)
	owned := []string{t.full, t.results, g.open, t.generation(number - 1).sealed, g.results,
		t.generation(number - 1).results}
	return `WITH v AS (SELECT relowner, relnamespace, quote_ident(pg_get_userbyid(relowner)) AS name FROM pg_class WHERE oid = to_regclass('` + t.full + `')),` +
		` problems(problem) AS (SELECT 'the role ' || v.name || ' owns the view and is not the owner of ' || c.oid::regclass FROM v JOIN pg_class AS c` +
		` ON c.oid IN (to_regclass('` + strings.Join(owned, `'), to_regclass('`) +
		`')) WHERE NOT pg_has_role(v.relowner, c.relowner, 'USAGE')` +
		` UNION ALL SELECT 'the role ' || v.name || ' has no CREATE in the schema' FROM v WHERE NOT has_schema_privilege(v.relowner, v.relnamespace, 'CREATE')` +
		` UNION ALL SELECT 'the role ' || v.name || ' has no SELECT and UPDATE on ` +
		strings.ReplaceAll(t.state, `'`, ``) + `' FROM v` +
		` WHERE NOT (has_table_privilege(v.relowner, '` + t.state +
		`', 'SELECT') AND has_table_privilege(v.relowner, '` + t.state + `', 'UPDATE')))` +
		` SELECT coalesce(string_agg(problem, '; '), '') FROM problems`
}

// checkRotation reports what would make the next rotation fail. Without this check the table would
// grow until somebody notices.
func (m *Ledger) checkRotation(ctx context.Context, db *sql.DB) error {
	if m.generations == nil {
		return nil
	}
	var number int64
	if err := scanOne(ctx, db, m.generations.read, &number); err != nil {
		return fmt.Errorf("sqladapter: check: %w",
			sqlerr.NeedsRight(err, "SELECT on "+m.table.state))
	}
	var problems string
	if err := scanOne(ctx, db, m.table.mayRotate(number), &problems); err != nil {
		return fmt.Errorf("sqladapter: check: %w", err)
	}
	if problems != "" {
		return fmt.Errorf("sqladapter: check: Rotate would fail, for it needs %s: %s",
			toRotate, problems)
	}
	return nil
}

// dropNotAttempted drops generations one by one. It keeps the open generation and the one before
// it, where marks are looked for. Everything older was sealed at least a window before the open one
// was opened.
func (m *Ledger) dropNotAttempted(ctx context.Context, db *sql.DB) error {
	for {
		dropped, err := m.briefly(ctx, db, func(tx *sql.Tx) (bool, error) {
			return m.dropOldest(ctx, tx)
		})
		if err != nil || !dropped {
			return err
		}
	}
}

func (m *Ledger) dropOldest(ctx context.Context, tx *sql.Tx) (bool, error) {
	var oldest int64
	turn := `SELECT oldest FROM ` + m.table.state +
		` WHERE oldest < generation - 1 FOR UPDATE SKIP LOCKED`
	if err := tx.QueryRowContext(ctx, turn).Scan(&oldest); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		return false, err
	}
	g := m.table.generation(oldest)
	for _, text := range []string{
		`DROP TABLE IF EXISTS ` + g.sealed + `, ` + g.results,
		`UPDATE ` + m.table.state + ` SET oldest = oldest + 1`,
	} {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return false, err
		}
	}
	return true, nil
}
