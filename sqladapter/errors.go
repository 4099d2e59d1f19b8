package sqladapter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/onceward/onceward/dedup"
)

// SQLSTATE codes of PostgreSQL, appendix A of its manual.
const (
	stateSerialization = "40001"
	stateDeadlock      = "40P01"
	stateLockTimeout   = "55P03"
)

// Result codes of SQLite; the low byte is the primary code.
const (
	sqliteBusy   = 5
	sqliteLocked = 6
)

// unlearnt is the Mark of a statement that failed. A lock timeout means that another
// transaction holds the key and has not ended.
func unlearnt(err error) Mark {
	if sqlState(err) == stateLockTimeout {
		return Mark{Outcome: dedup.InFlight, Err: fmt.Errorf("sqladapter: %w: %w", dedup.ErrInFlight, err)}
	}
	return Mark{Outcome: dedup.Unknown, Err: fmt.Errorf("sqladapter: %w", err)}
}

// Retryable reports whether the whole transaction, from BEGIN, may succeed when it is
// run again: after a serialization failure, a deadlock, a lock timeout, SQLite's busy
// and locked, a server that is starting or stopping, and a lost connection, also when it
// was lost during COMMIT. Never repeat the failed statement alone.
//
// It answers true for a lost COMMIT because the repeated transaction meets its own mark;
// that holds only when MarkTx and the effect are in it. It is false for bad input, a
// mismatch, an ended context and everything it does not know. It needs no driver: an
// error tells its code by SQLState() string (pgx, lib/pq) or Code() int (modernc's
// SQLite); for a driver whose errors have neither, ask the driver.
func Retryable(err error) bool {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.Is(err, dedup.ErrUnknown), errors.Is(err, dedup.ErrInFlight):
		return true
	}
	if state := sqlState(err); state != "" {
		return retryableState(state)
	}
	var sqlite interface{ Code() int }
	if errors.As(err, &sqlite) {
		code := sqlite.Code() & 0xff
		return code == sqliteBusy || code == sqliteLocked
	}
	return connectionLost(err)
}

func sqlState(err error) string {
	var postgres interface{ SQLState() string }
	if errors.As(err, &postgres) {
		return postgres.SQLState()
	}
	return ""
}

func retryableState(state string) bool {
	switch state {
	case stateSerialization, stateDeadlock, stateLockTimeout,
		"40003",                   // statement completion unknown
		"25P03",                   // idle in transaction: the session was ended
		"53300",                   // too many connections
		"57P01", "57P02", "57P03": // stopping, crashed, starting
		return true
	}
	return len(state) == 5 && state[:2] == "08" // connection exceptions
}

// connectionLost also believes an error that calls itself safe to retry. Some versions
// of pgx say so of a lost COMMIT that has happened; that is harmless here, where the
// transaction is repeated with its mark, and wrong anywhere else.
func connectionLost(err error) bool {
	var network net.Error
	var safe interface{ SafeToRetry() bool }
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &network) || errors.As(err, &safe) && safe.SafeToRetry()
}
