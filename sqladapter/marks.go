package sqladapter

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/migration"
)

// defaultTable is the table of a [Config] that names none.
const defaultTable = "onceward_marks"

const defaultResultLimit = 256 << 10

// minWindow is the resolution of the stamps.
const minWindow = time.Millisecond

// Config says where marks are kept. Dialect and Namespace are required.
type Config struct {
	// Dialect of the database. No default.
	Dialect Dialect
	// Namespace the keys belong to, 1-64 bytes of letters, digits, '_', '.', '-'. Namespaces can
	// share a table; they do not share keys, but they share the table's window. No default.
	Namespace string
	// Schema that holds the table (SQLite: the attached database), of the form
	// [A-Za-z_][A-Za-z0-9_]{0,62}. It must exist. Names are always quoted, so PostgreSQL
	// distinguishes upper and lower case. Default: the connection's own.
	Schema string
	// Table that holds the marks; same form as Schema. Default: onceward_marks.
	Table string
	// Window is how long a mark is kept before [Ledger.DeleteExpired] may remove it, at
	// least one millisecond. The longest window that any user of the table has migrated with
	// is on record next to the table, and holds for all of it; [Ledger.SetWindow] shortens it.
	// Default: zero, which keeps marks forever.
	Window time.Duration
	// Retention is how expired marks are removed: [DeleteRows] or [Generations]. A table keeps the
	// Retention that it was made for. Generations are for PostgreSQL and MySQL, need a Window, and
	// are for tables so large that deletes, and the vacuum after them, cost too much. Default:
	// DeleteRows.
	Retention Retention
	// IDTime says that every key is an id of this kind, and carries the time at which it was made.
	// The rows then stand in the order of that time, and new ones go to a few pages of the index
	// instead of anywhere in it. The time only orders rows: the database's clock decides when a
	// mark expires. A key of another kind is a [*dedup.InputError] on "key". A row keeps 96 bits of
	// the key's digest instead of 128. A table keeps the kind that it was made for, and a Ledger
	// with another kind is refused at its first mark: see Previous. It needs PostgreSQL or MySQL,
	// with DeleteRows. Default: zero, keys of any form.
	IDTime IDTime
	// SnowflakeEpoch is the instant from which ids count, in ms. It is required for [Snowflake],
	// where it is a part of the kind, and must be zero for any other kind. No default.
	SnowflakeEpoch time.Time
	// Previous is the Ledger of the table that this one takes over from, such as one with another
	// IDTime. Keys are marked in both tables, and one that is in either is a duplicate. Programs
	// with the old table alone may run at the same time. Remove Previous when a window has passed
	// since the last of these programs ended. It needs DELETE on the old table, the same Dialect
	// (PostgreSQL or MySQL), and DeleteRows. A new key takes one round trip more. Default: nil.
	Previous *Ledger
	// ResultLimit bounds what [Ledger.SaveResultTx] keeps, in bytes. Default: 262144, which is
	// 256 KiB.
	ResultLimit int
	// Isolation of the transactions that [Ledger.Do] and [Ledger.DoBatch] begin: choose what the
	// effect needs. Marks are right at every level. With PostgreSQL concurrent duplicates fail
	// above READ COMMITTED with serialization errors, and are run again. With MySQL nothing fails,
	// and READ COMMITTED locks the least. It must be zero for SQLite, which has one level. Default:
	// [sql.LevelDefault], which is what the database or the connection has set; in MySQL that is
	// REPEATABLE READ unless changed.
	Isolation sql.IsolationLevel
	// LockTimeout is how long the marks of [Ledger.Do], [Ledger.DoBatch] and [Runner.Run] wait for
	// another transaction that has marked the same key, before the answer is [dedup.ErrInFlight]: 1
	// ms to 1 h. Without it an owner that hangs holds up every caller of its key. It replaces the
	// database's lock timeout for the mark only; the effect gets the database's own back. This
	// takes two round trips more. MySQL counts in whole seconds, so the value is rounded up there.
	// It must be zero for SQLite, where busy_timeout belongs to the connection. Default: zero,
	// which means the database's own lock timeout (PostgreSQL: none, MySQL: 50 s); a Runner takes 1
	// s.
	LockTimeout time.Duration
}

// Tx runs a statement in the caller's transaction. *sql.Tx has this method, and so do its wrappers.
// A *sql.Conn fits while a transaction is open on it. With MySQL a Tx needs the ExecContext of
// *sql.Tx too. For a transaction that is not of database/sql see [native.Tx].
type Tx interface {
	// QueryContext is that of *sql.Tx. The rows are read and closed before the next call.
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// execTx is the further method that a transaction of MySQL or SQL Server needs: *sql.Tx and
// *sql.Conn have it, and so do most of their wrappers.
type execTx interface {
	Tx
	// ExecContext is that of *sql.Tx.
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Ledger records operations in the caller's transactions. Make it with [New]. It holds
// no connection, starts no goroutine and is safe for concurrent use.
type Ledger struct {
	namespace string
	name      Dialect
	ids       idForm
	// previous is the Ledger whose table also gets the marks; nil where there is none.
	previous *Ledger
	// idsKnown says that the table's ids were read once and have this form.
	idsKnown  atomic.Bool
	window    time.Duration
	isolation sql.IsolationLevel
	limit     int // of a result
	// lockTimeout is zero if the database's own lock timeout applies.
	lockTimeout time.Duration
	retention   Retention
	table       tableName
	dialect     *statements
	// binary is dialect for transactions that send arrays in binary; nil where there are none.
	binary   *statements
	versions *migration.Set
	// generations is nil with another retention, and with MySQL, where generations keep their
	// names.
	generations *generations
}

// New checks the configuration. It does not touch the database; see [Ledger.Migrate]. Its error is
// a [*dedup.InputError] that names the wrong field.
func New(cfg Config) (*Ledger, error) {
	build, ok := dialects[cfg.Dialect]
	if !ok {
		return nil, inputError("Dialect", "must be Postgres, SQLite or MySQL")
	}
	if err := checkNamespace(cfg.Namespace); err != nil {
		return nil, err
	}
	if cfg.Window < 0 || cfg.Window > 0 && cfg.Window < minWindow {
		return nil, inputError("Window", "must be zero or at least 1ms, is "+cfg.Window.String())
	}
	if err := checkIsolation(cfg.Dialect, cfg.Isolation); err != nil {
		return nil, err
	}
	if cfg.ResultLimit < 0 {
		return nil, inputError("ResultLimit",
			fmt.Sprintf("must not be negative, is %d", cfg.ResultLimit))
	}
	if err := checkRetention(cfg); err != nil {
		return nil, err
	}
	ids, err := newIDForm(cfg)
	if err != nil {
		return nil, err
	}
	table, err := newTableName(cfg.Dialect, cfg.Schema, cfg.Table)
	if err != nil {
		return nil, err
	}
	m := &Ledger{
		namespace: cfg.Namespace, window: cfg.Window, isolation: cfg.Isolation,
		name: cfg.Dialect, ids: ids, retention: cfg.Retention, table: table,
		limit:   cmp.Or(cfg.ResultLimit, defaultResultLimit),
		dialect: build(table, cfg.Window), lockTimeout: cfg.LockTimeout,
	}
	if err := checkLockTimeout(cfg.LockTimeout, m.dialect.bound); err != nil {
		return nil, err
	}
	switch {
	case m.retention == Generations:
		m.useGenerations(cfg.Dialect)
	case cfg.Dialect == MySQL && ids.kind != 0:
		m.dialect.walker = newMySQLWalk(table, mysqlForget(table)).inTime(table)
	case cfg.Dialect == Postgres:
		m.binary = newPostgresWith(table, cfg.Window, asBinary)
	}
	if err := m.checkPrevious(cfg); err != nil {
		return nil, err
	}
	m.versions, err = m.newMigrations(cfg)
	return m, err
}

func checkRetention(cfg Config) error {
	switch {
	case cfg.Retention > Generations:
		return inputError("Retention", "must be DeleteRows or Generations")
	case cfg.Retention == Generations && cfg.Dialect != Postgres && cfg.Dialect != MySQL:
		return inputError("Retention",
			"is Generations, which is for PostgreSQL and MySQL, not for "+cfg.Dialect.String())
	case cfg.Retention == Generations && cfg.Window == 0:
		return inputError("Window", "is zero, which keeps marks forever; Generations need one")
	}
	return nil
}

func checkIsolation(d Dialect, level sql.IsolationLevel) error {
	if level < sql.LevelDefault || level > sql.LevelLinearizable {
		return inputError("Isolation", fmt.Sprintf("is %d, which is not a level", int(level)))
	}
	if d == SQLite && level != sql.LevelDefault {
		return inputError("Isolation", "is "+level.String()+"; SQLite has one level")
	}
	return nil
}

// checkNamespace digests a key, so that a namespace is checked by the same rules as with keys.
func checkNamespace(namespace string) error {
	_, err := driver.NewID(namespace, "", "x")
	var input *dedup.InputError
	if errors.As(err, &input) {
		return inputError("Namespace", input.Reason)
	}
	return err
}

// ready refuses a Ledger that New has not made, before any statement.
func (m *Ledger) ready() error {
	if m == nil || m.dialect == nil {
		return inputError("Ledger", "is nil or was not made by New")
	}
	return nil
}

func (m *Ledger) checkTx(tx Tx) error { return checkTx(tx, m.dialect.counts) }

// checkTx refuses nil and connection pools: on a pool the record would be committed at
// once, before the effect, and a crash between the two would lose the message.
func checkTx(tx Tx, executes bool) error {
	if isNil(tx) {
		return inputError("tx", "is nil")
	}
	if isPool(tx) {
		return inputError("tx", "is a connection pool; pass the transaction that holds the effect")
	}
	if _, ok := tx.(execTx); executes && !ok {
		return inputError("tx",
			"has no ExecContext as *sql.Tx has, which MySQL and SQL Server need")
	}
	return nil
}

// isPool recognizes a *sql.DB, its wrappers, and gorm's pool of prepared statements. gorm's
// transaction has the same methods as its pool, and Commit.
func isPool(tx Tx) bool {
	if _, pool := tx.(interface{ SetMaxOpenConns(n int) }); pool {
		return true
	}
	_, pool := tx.(interface{ GetDBConn() (*sql.DB, error) })
	_, ends := tx.(interface{ Commit() error })
	return pool && !ends
}

// isNil also sees a nil pointer inside an interface: a nil *sql.Tx is a likely mistake.
func isNil(v any) bool {
	rv := reflect.ValueOf(v)
	return !rv.IsValid() || rv.Kind() == reflect.Pointer && rv.IsNil()
}

// newSalt returns random bits, at most 63. crypto/rand.Read never fails since Go 1.24.
func newSalt(bits int) int64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return int64(binary.BigEndian.Uint64(b[:]) >> (64 - bits)) // the highest bit is gone
}

func inputError(field, reason string) error {
	return &dedup.InputError{Field: field, Reason: reason}
}
