package sqladapter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
)

// sqliteError is shaped like the error of modernc's SQLite, with a result code.
type sqliteError int

func (e sqliteError) Error() string { return fmt.Sprintf("sqlite says %d", int(e)) }
func (e sqliteError) Code() int     { return int(e) }

// safeError is shaped like an error of pgx: it says whether nothing was sent, and may be wrong.
type safeError bool

func (e safeError) Error() string     { return "conn closed" }
func (e safeError) SafeToRetry() bool { return bool(e) }

func TestRetryable(t *testing.T) {
	tests := []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("anything else"), false},
		{codeError("40001"), true}, // serialization failure
		{codeError("40P01"), true}, // deadlock
		{codeError("55P03"), true}, // lock timeout
		{codeError("57P01"), true}, // server is stopping
		{codeError("08006"), true}, // connection failure
		{codeError("40003"), true}, // completion unknown
		{codeError("25P03"), true}, // idle in transaction timeout
		{codeError("25P02"), false},
		{codeError("23505"), false},
		{codeError("23503"), false},
		{codeError("42P01"), false}, // no such table
		{codeError("57014"), false}, // statement timeout or cancel
		{codeError("08"), false},
		{sqliteError(5), true},
		{sqliteError(517), true}, // SQLITE_BUSY_SNAPSHOT
		{sqliteError(6), true},
		{sqliteError(1), false},
		{sqliteError(2067), false}, // SQLITE_CONSTRAINT_UNIQUE
		{driver.ErrBadConn, true},
		{sql.ErrConnDone, true},
		{sql.ErrTxDone, false},
		{io.ErrUnexpectedEOF, true},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, true},
		{safeError(true), true},
		{safeError(false), false},
		{context.Canceled, false},
		// A deadline also has the methods of a network timeout.
		{context.DeadlineExceeded, false},
		{dedup.ErrMismatch, false},
		{dedup.ErrInFlight, true},
		{dedup.ErrUnknown, true},
		{inputError("key", "is empty"), false},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, Retryable(tt.err))
		if tt.err == nil {
			continue
		}
		assert.Equal(t, tt.want, Retryable(fmt.Errorf("wrapped: %w", tt.err)))
	}
}
