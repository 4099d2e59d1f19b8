// Package sqlerr reads what the errors of SQL databases say, without importing a driver.
//
// An error of PostgreSQL has its code in the method SQLState() string (pgx, lib/pq), one of SQLite
// in Code() int (modernc), and one of SQL Server in SQLErrorNumber() int32 (go-mssqldb).
// go-sql-driver's MySQLError has only fields, which are read by their names.
package sqlerr

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
)

// State is the SQLSTATE of PostgreSQL in err, or empty.
func State(err error) string {
	var postgres interface{ SQLState() string }
	if errors.As(err, &postgres) {
		return postgres.SQLState()
	}
	return ""
}

// SQLite is the primary result code of SQLite in err, or zero.
func SQLite(err error) int {
	var lite interface{ Code() int }
	if errors.As(err, &lite) {
		return lite.Code() & 0xff
	}
	return 0
}

// MySQL is the error number of MySQL or MariaDB in err, or zero.
func MySQL(err error) int {
	if found := mysqlError(err); found != nil {
		return number(found)
	}
	return 0
}

// mysqlError is the first error in err that has a number of MySQL, or nil.
func mysqlError(err error) error {
	for err != nil {
		if number(err) != 0 {
			return err
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, one := range many.Unwrap() {
				if found := mysqlError(one); found != nil {
					return found
				}
			}
			return nil
		}
		err = errors.Unwrap(err)
	}
	return nil
}

// number reads the fields that go-sql-driver gives its errors.
func number(err error) int {
	v := reflect.ValueOf(err)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct ||
		v.Elem().Type().Name() != "MySQLError" {
		return 0
	}
	if n := v.Elem().FieldByName("Number"); n.IsValid() && n.Kind() == reflect.Uint16 {
		return int(n.Uint())
	}
	return 0
}

// Codes that say something about a lock or a transaction.
const (
	pgSerialization = "40001"
	pgDeadlock      = "40P01"
	pgLockTimeout   = "55P03"
	pgNoTable       = "42P01"
	// The record has changed since the snapshot (MariaDB), lock wait timeout, deadlock,
	// and NOWAIT.
	mySnapshot, myLockTimeout, myDeadlock, myNoWait = 1020, 1205, 1213, 3572
	myNoSavepoint, myNoTable, myLeftOpen            = 1305, 1146, 1568
	liteBusy, liteLocked                            = 5, 6
)

// Waited reports whether a wait for somebody else's lock was cut short. PostgreSQL then has aborted
// the transaction; MySQL has undone only the statement, and a COMMIT would keep the rest.
func Waited(err error) bool {
	n := MySQL(err)
	return State(err) == pgLockTimeout || n == myLockTimeout || n == myNoWait ||
		isServer(err, msLockTimeout)
}

// Doomed reports whether the server has rolled a transaction of MySQL or SQL Server back by
// itself. The next statement on the same connection is in a new one, or in none.
func Doomed(err error) bool {
	n := MySQL(err)
	return n == myDeadlock || n == mySnapshot ||
		isServer(err, msDeadlock, msSnapshot, msUncommittable, msUncommitted)
}

// NoSavepoint reports that a savepoint of MySQL does not exist: its transaction has ended.
func NoSavepoint(err error) bool { return MySQL(err) == myNoSavepoint }

// NoTransaction reports that PostgreSQL refuses a statement because no transaction is open.
func NoTransaction(err error) bool { return State(err) == "25P01" }

// Ended reports that PostgreSQL knows nothing of a savepoint, whose transaction must have ended.
func Ended(err error) bool { return State(err) == "3B001" || NoTransaction(err) }

// Aborted reports that a transaction of PostgreSQL waits for its ROLLBACK after an error.
func Aborted(err error) bool { return State(err) == "25P02" }

// IsConn reports whether tx is a *sql.Conn, or wraps one: something on which a transaction can be
// begun. It need not be in a transaction.
func IsConn(tx any) bool {
	_, conn := tx.(interface {
		BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	})
	return conn
}

// ReadOnly reports that the server, or the session, takes no writes: the server was a primary and
// is not one any more. Another connection may find the new primary.
func ReadOnly(err error) bool {
	const pgReadOnly = "25006"
	const myOption, myReadOnlyTransaction, myReadOnlyMode = 1290, 1792, 1836
	switch MySQL(err) {
	case myReadOnlyTransaction, myReadOnlyMode:
		return true
	case myOption: // one number for many options; the text names the option
		return strings.Contains(err.Error(), "read-only") ||
			strings.Contains(err.Error(), "read_only")
	}
	return State(err) == pgReadOnly
}

// LeftOpen reports that no level can be chosen for a transaction of MySQL, because another one is
// open on its connection: with autocommit off, any statement opens one.
func LeftOpen(err error) bool { return MySQL(err) == myLeftOpen }

// Unshowable reports that MySQL cannot show the statements that run: one of them has bytes that are
// not UTF-8 (ER_CANNOT_CONVERT_STRING).
func Unshowable(err error) bool {
	const myCannotConvert = 3854
	return MySQL(err) == myCannotConvert
}

// NoTable reports that a statement names a table that does not exist.
func NoTable(err error) bool {
	const generic = 1 // SQLite has no number for it, only a text
	return State(err) == pgNoTable || MySQL(err) == myNoTable || isServer(err, msNoTable) ||
		SQLite(err) == generic && strings.Contains(err.Error(), "no such table")
}

// Coded reports whether err has a code of a database. Then the server, or SQLite, has answered.
func Coded(err error) bool {
	_, server := SQLServer(err)
	return State(err) != "" || MySQL(err) != 0 || SQLite(err) != 0 || server
}

// Denied reports that the role lacks a right: SQLSTATE 42501, and MySQL's refusals of a user for a
// database, a table, a column or a statement.
func Denied(err error) bool {
	const pgDenied, msDenied, msDeniedDatabase = "42501", 229, 262
	switch MySQL(err) {
	case 1044, 1045, 1142, 1143, 1227, 1370, 1698:
		return true
	}
	return State(err) == pgDenied || isServer(err, msDenied, msDeniedDatabase)
}

// NeedsRight adds to the refusal of a statement which right the role lacks. It returns any other
// error as it is.
func NeedsRight(err error, right string) error {
	if !Denied(err) {
		return err
	}
	return fmt.Errorf("the role needs %s, which has not been granted: %w", right, err)
}

// OtherForm reports whether the error of a statement that reads the columns of a table proves that
// the table has other columns. A missing right, a read-only server, a timeout and everything
// unknown prove nothing: a caller that took them for proof would drop a table whose records are
// needed.
func OtherForm(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		NoTable(err) {
		return false
	}
	if state := State(err); state != "" {
		// Undefined columns, other types, not a table; and values that cannot be read as the type.
		return len(state) == 5 && (state[:2] == "42" && !Denied(err) || state[:2] == "22")
	}
	if n := MySQL(err); n != 0 {
		switch n {
		case 1054, 1176, 1267, 1292, 1305, 1347, 1366:
			// unknown column, no such key, collations, values, function, not a table
			return true
		}
		return false
	}
	if code := SQLite(err); code != 0 {
		const generic, mismatch = 1, 20
		return code == generic || code == mismatch
	}
	if n, ok := SQLServer(err); ok {
		return n == 207 || n == 206 || n == 245 // unknown column, other types
	}
	return !Lost(err) // database/sql cannot read a value into its type
}

// Transient reports whether a transaction that failed with err may succeed when it is run again
// from BEGIN. That is so after a serialization failure, a deadlock, a lock timeout, SQLite's busy
// and locked, a server that starts, stops or has become read-only, and a lost connection. It is
// false for an ended context and for everything it does not know.
func Transient(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if ReadOnly(err) {
		return true
	}
	if state := State(err); state != "" {
		return transientState(state)
	}
	if n := MySQL(err); n != 0 {
		return transientNumber(n)
	}
	if code := SQLite(err); code != 0 {
		return code == liteBusy || code == liteLocked
	}
	if n, ok := SQLServer(err); ok && transientServer(n) {
		return true
	}
	return Lost(err)
}

func transientState(state string) bool {
	switch state {
	case pgSerialization, pgDeadlock, pgLockTimeout,
		"40003",                   // statement completion unknown
		"25P03",                   // idle in transaction: the session was ended
		"53300",                   // too many connections
		"57P01", "57P02", "57P03", // stopping, crashed, starting
		"57P05": // idle for too long: the session was ended
		return true
	}
	return len(state) == 5 && state[:2] == "08" // connection exceptions
}

func transientNumber(n int) bool {
	switch n {
	case mySnapshot, myLockTimeout, myDeadlock, myNoWait,
		1040, 1203, // too many connections, of all and of one user
		1412, 159, // the table was made after the transaction's snapshot (MySQL, MariaDB)
		1053,                         // server is shutting down
		1152, 1158, 1159, 1160, 1161, // connection lost while reading or writing
		1927,       // connection was killed (MariaDB)
		3169, 4031: // session was killed, or ended because it was idle (MySQL)
		return true
	}
	return false
}

// Undone reports whether a transaction was certainly rolled back, or never begun, because of
// another transaction: a serialization failure, a deadlock, a lock timeout, SQLite's busy and
// locked. That is so even if COMMIT returned the error. The caller rolls back what the server has
// not.
func Undone(err error) bool {
	state, code := State(err), SQLite(err)
	return state == pgSerialization || state == pgDeadlock || code == liteBusy ||
		code == liteLocked ||
		Waited(err) || Doomed(err)
}

// Violated reports that a constraint was violated: SQLSTATE class 23 of PostgreSQL, or
// SQLITE_CONSTRAINT. If COMMIT returns that, because the constraint was deferred, nothing is
// committed. PostgreSQL has aborted the transaction; with SQLite the caller rolls it back.
func Violated(err error) bool {
	const liteConstraint = 19
	state := State(err)
	return len(state) == 5 && state[:2] == "23" || SQLite(err) == liteConstraint
}

// Full reports whether the database has no room for what was to be written.
func Full(err error) bool {
	const pgDiskFull, liteFull, myDiskFull, myTableFull, msDiskFull, msLogFull = "53100",
		13, 1021, 1114, 1105, 9002
	n := MySQL(err)
	return State(err) == pgDiskFull || SQLite(err) == liteFull || n == myDiskFull ||
		n == myTableFull || isServer(err, msDiskFull, msLogFull)
}

// Lost reports whether the connection was lost, so that the statement may have been executed. It
// also believes an error that calls itself safe to retry. Some versions of pgx say so of a lost
// COMMIT that has happened, so it does not mean "not executed".
func Lost(err error) bool {
	var network net.Error
	var safe interface{ SafeToRetry() bool }
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) ||
		hasText(err, invalidConn) || severed(err) ||
		errors.As(err, &network) || errors.As(err, &safe) && safe.SafeToRetry()
}

// invalidConn is the text of go-sql-driver's ErrInvalidConn, which has no type of its own.
const invalidConn = "invalid connection"

// hasText looks for an error with exactly this text in the tree of err.
func hasText(err error, text string) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err.Error() == text {
			return true
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, one := range many.Unwrap() {
				if hasText(one, text) {
					return true
				}
			}
			return false
		}
	}
	return false
}
