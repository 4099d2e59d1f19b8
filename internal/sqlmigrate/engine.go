package sqlmigrate

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/onceward/onceward/internal/sqlerr"
)

// engine holds what differs between databases. All its statements contain names that were checked,
// so they need no parameters, whose form differs, too.
type engine struct {
	// exists returns a row when the table of versions exists. A missing table must not be an error,
	// which in PostgreSQL would end the caller's transaction.
	exists string
	// versions is the full name of the table of versions.
	versions string
	// create makes the table of versions.
	create string
	// read reads the version.
	read string
	// save returns the statement that records a version other than zero; remove is for zero.
	save   func(version int) string
	remove string
	// isolation is the level of a step, which has to see what was committed while it waited for the
	// lock.
	isolation sql.IsolationLevel
	// before are the first statements of a step, in its transaction: other migrations wait here.
	before []string
	// lock keeps other migrations away during all steps, where a transaction cannot. Otherwise it
	// is nil.
	lock func(ctx context.Context, conn *sql.Conn) (unlock func(), err error)
	// transact reports that reads need a transaction. On a connection of MySQL with autocommit off,
	// a read outside of a transaction opens one. It stays open when the connection goes back to its
	// pool, and the next user of the connection cannot begin one with an isolation level (1568).
	transact bool
	// done reports whether a statement has failed because it has been run before.
	done func(error) bool
}

func newEngine(cfg Config) (*engine, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	switch cfg.Dialect {
	case Postgres:
		return postgres(cfg), nil
	case MySQL:
		return mysql(cfg), nil
	case SQLite:
		return sqlite(cfg), nil
	case SQLServer:
		return sqlserver(cfg), nil
	}
	return nil, fmt.Errorf("field Dialect %q is none of postgres, mysql, sqlite, sqlserver",
		cfg.Dialect)
}

// common returns the engine for databases with ON CONFLICT. The other databases save a version in
// their own way.
func common(cfg Config) *engine {
	table := newNames(cfg).full(Table)
	where := ` WHERE component = '` + cfg.Component + `' AND table_name = '` + cfg.Table + `'`
	return &engine{
		versions: table,
		read:     `SELECT version FROM ` + table + where,
		save: func(version int) string {
			return fmt.Sprintf(`INSERT INTO %s (component, table_name, version) VALUES ('%s', '%s', %d)`+
				` ON CONFLICT (component, table_name) DO UPDATE SET version = excluded.version;`,
				table, cfg.Component, cfg.Table, version)
		},
		remove: `DELETE FROM ` + table + where + `;`,
		done:   func(error) bool { return false },
	}
}

func postgres(cfg Config) *engine {
	e := common(cfg)
	table := newNames(cfg).full(Table)
	e.exists = `SELECT 1 WHERE to_regclass('` + table + `') IS NOT NULL`
	e.create = `CREATE TABLE IF NOT EXISTS ` + table + ` (component text COLLATE "C" NOT NULL,` +
		` table_name text COLLATE "C" NOT NULL, version integer NOT NULL, PRIMARY KEY (component, table_name));`
	e.isolation = sql.LevelReadCommitted
	// The lock comes first: CREATE TABLE IF NOT EXISTS fails when two sessions find the table
	// missing at the same time.
	e.before = []string{`SELECT pg_advisory_xact_lock(hashtextextended('onceward migrate', 0))`,
		e.create}
	return e
}

// sqlite begins a step with a write, because a transaction that has read first cannot wait for
// another writer. CREATE TABLE is not enough: it does not write if the table exists.
func sqlite(cfg Config) *engine {
	e := common(cfg)
	table := newNames(cfg).full(Table)
	master := `sqlite_master`
	if cfg.Schema != "" {
		master = newNames(cfg).quote(cfg.Schema) + `.` + master
	}
	e.exists = `SELECT 1 FROM ` + master + ` WHERE type = 'table' AND name = '` + Table + `'`
	e.create = `CREATE TABLE IF NOT EXISTS ` + table +
		` (component TEXT NOT NULL, table_name TEXT NOT NULL,` +
		` version INTEGER NOT NULL, PRIMARY KEY (component, table_name)) WITHOUT ROWID;`
	e.before = []string{`DELETE FROM ` + table + ` WHERE 0`}
	e.lock = func(ctx context.Context, conn *sql.Conn) (func(), error) {
		_, err := conn.ExecContext(ctx, e.create)
		return func() {}, err
	}
	return e
}

func mysql(cfg Config) *engine {
	e := common(cfg)
	table := newNames(cfg).full(Table)
	schema := `DATABASE()`
	if cfg.Schema != "" {
		schema = `'` + cfg.Schema + `'`
	}
	e.exists = `SELECT 1 FROM information_schema.tables WHERE table_schema = ` + schema +
		` AND table_name = '` + Table + `'`
	e.create = `CREATE TABLE IF NOT EXISTS ` + table +
		` (component VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,` +
		` table_name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, version INT NOT NULL,` +
		` PRIMARY KEY (component, table_name)) ENGINE=InnoDB;`
	e.save = func(version int) string {
		return fmt.Sprintf(`INSERT INTO %s (component, table_name, version) VALUES ('%s', '%s', %d)`+
			` ON DUPLICATE KEY UPDATE version = %d;`, table, cfg.Component, cfg.Table,
			version, version)
	}
	e.lock = func(ctx context.Context, conn *sql.Conn) (func(), error) {
		unlock, err := userLock(ctx, conn)
		if err != nil {
			return nil, err
		}
		if _, err := conn.ExecContext(ctx, e.create); err != nil {
			unlock()
			return nil, err
		}
		return unlock, nil
	}
	e.transact = true
	e.done = func(err error) bool {
		const duplicateColumn, duplicateIndex, nothingToDrop = 1060, 1061, 1091
		n := sqlerr.MySQL(err)
		return n == duplicateColumn || n == duplicateIndex || n == nothingToDrop
	}
	return e
}

// userLockWait is how long a migration waits for another one, in MySQL, in seconds.
const userLockWait = 60

// unlockTime bounds the release, which does not end with its caller's context.
const unlockTime = 5 * time.Second

// userLock takes a lock of the session, because the transactions of MySQL end with each DDL
// statement. The server frees the lock when the session ends. All databases of the server share one
// lock.
func userLock(ctx context.Context, conn *sql.Conn) (unlock func(), err error) {
	var got sql.NullInt64
	ask := fmt.Sprintf(`SELECT GET_LOCK('onceward migrate', %d)`, userLockWait)
	if err := conn.QueryRowContext(ctx, ask).Scan(&got); err != nil {
		return nil, err
	}
	if got.Int64 != 1 {
		return nil, fmt.Errorf("another migration has held the lock 'onceward migrate' for %d s",
			userLockWait)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTime)
		defer cancel()
		if _, err := conn.ExecContext(ctx, `DO RELEASE_LOCK('onceward migrate')`); err != nil {
			discard(conn)
		}
	}, nil
}

// discard closes the session, so that it does not go back to the pool with its lock.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// record returns the statement that saves a version.
func (e *engine) record(version int) string {
	if version == 0 {
		return e.remove
	}
	return e.save(version)
}

// bare returns a statement without the semicolon at its end, which some drivers refuse.
func bare(statement string) string { return strings.TrimSuffix(statement, ";") }
