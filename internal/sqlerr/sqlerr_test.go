package sqlerr

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
)

type pgError string

func (e pgError) Error() string    { return "postgres says " + string(e) }
func (e pgError) SQLState() string { return string(e) }

// MySQLError is shaped as that of go-sql-driver.
type MySQLError struct {
	Number   uint16
	SQLState [5]byte
	Message  string
}

func (e *MySQLError) Error() string { return e.Message }

type liteError int

func (e liteError) Error() string { return fmt.Sprintf("sqlite says %d", int(e)) }
func (e liteError) Code() int     { return int(e) }

type safeError bool

func (e safeError) Error() string     { return "conn closed" }
func (e safeError) SafeToRetry() bool { return bool(e) }

// serverError is shaped as that of go-mssqldb, which is not a pointer.
type serverError struct {
	number int32
	class  uint8
}

func (e serverError) Error() string         { return fmt.Sprintf("sql server says %d", e.number) }
func (e serverError) SQLErrorNumber() int32 { return e.number }
func (e serverError) SQLErrorClass() uint8  { return e.class }

func ms(n int32) error { return serverError{number: n, class: 16} }

func my(n uint16) error { return &MySQLError{Number: n} }

func TestErrors(t *testing.T) {
	tests := []struct {
		err                             error
		transient, waited, doomed, lost bool
	}{
		{err: nil},
		{err: errors.New("anything else")},
		{err: pgError("40001"), transient: true},
		{err: pgError("40P01"), transient: true},
		{err: pgError("55P03"), transient: true, waited: true},
		{err: pgError("57P01"), transient: true},
		{err: pgError("57P05"), transient: true},
		{err: pgError("08006"), transient: true},
		{err: pgError("25P02")},
		{err: pgError("23505")},
		{err: pgError("08")},
		{err: my(1213), transient: true, doomed: true},
		{err: my(1020), transient: true, doomed: true},
		{err: my(1205), transient: true, waited: true},
		{err: my(3572), transient: true, waited: true},
		{err: my(1053), transient: true},
		{err: my(3169), transient: true},
		{err: my(4031), transient: true},
		{err: my(1412), transient: true},
		{err: my(159), transient: true},
		{err: my(1062)},
		{err: my(1406)},
		{err: errors.New("invalid connection"), transient: true, lost: true},
		{err: errors.New("not an invalid connection")},
		{err: ms(1205), transient: true, doomed: true},
		{err: ms(3960), transient: true, doomed: true},
		{err: ms(3930), transient: true, doomed: true},
		{err: ms(3998), transient: true, doomed: true},
		{err: ms(0), transient: true},
		{err: ms(1222), transient: true, waited: true},
		{err: ms(3902), transient: true},
		{err: ms(3903), transient: true},
		{err: ms(1204), transient: true},
		{err: ms(40613), transient: true},
		{err: ms(2627)},
		{err: ms(2601)},
		{err: ms(547)},
		{err: ms(208)},
		{err: serverError{number: 596, class: 21}, transient: true, lost: true},
		{err: serverError{number: 823, class: 24}, transient: true, lost: true},
		{err: liteError(5), transient: true},
		{err: liteError(517), transient: true},
		{err: liteError(1)},
		{err: driver.ErrBadConn, transient: true, lost: true},
		{err: sql.ErrConnDone, transient: true, lost: true},
		{err: sql.ErrTxDone},
		{err: io.ErrUnexpectedEOF, transient: true, lost: true},
		{err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}, transient: true, lost: true},
		{err: safeError(true), transient: true, lost: true},
		{err: safeError(false)},
		{err: context.Canceled},
	}
	for _, tt := range tests {
		for how, err := range map[string]error{"": tt.err, "wrapped": wrap(tt.err),
			"joined": join(tt.err)} {
			if err == nil && how != "" {
				continue
			}
			assert.Equal(t, [4]bool{tt.transient, tt.waited, tt.doomed, tt.lost},
				[4]bool{Transient(err), Waited(err), Doomed(err),
					Lost(err)}, "%s %T: transient, waited, doomed, lost", how, tt.err)
		}
	}
	assert.True(t, LeftOpen(wrap(my(1568))), "LeftOpen is wrong")
	assert.False(t, LeftOpen(my(1305)), "LeftOpen is wrong")
	assert.False(t, LeftOpen(nil), "LeftOpen is wrong")
	assert.True(t, NoSavepoint(wrap(my(1305))), "1305 alone says that a savepoint is gone")
	assert.False(t, NoSavepoint(my(1213)), "1305 alone says that a savepoint is gone")
	assert.False(t, NoSavepoint(nil), "1305 alone says that a savepoint is gone")
	lite := liteError(1)
	assert.False(t, NoTable(lite), "a table of SQLite")
	assert.True(t, NoTable(wrap(fmt.Errorf("no such table: x: %w", lite))), "a table of SQLite")
	assert.True(t, NoTable(wrap(my(1146))), "1146 and 42P01 alone say that there is no such table")
	assert.True(t, NoTable(join(pgError("42P01"))),
		"1146 and 42P01 alone say that there is no such table")
	assert.False(t, NoTable(my(1305)), "1146 and 42P01 alone say that there is no such table")
	assert.False(t, NoTable(pgError("42703")),
		"1146 and 42P01 alone say that there is no such table")
	assert.False(t, NoTable(nil), "1146 and 42P01 alone say that there is no such table")
	assert.True(t, NoTable(wrap(ms(208))), "208 says that there is no such table")
	for n, want := range map[int32]bool{2601: true, 2627: true, 547: false, 1205: false} {
		assert.Equal(t, want, Duplicate(join(ms(n))), "%d: duplicate %v", n, !want)
	}
	assert.False(t, Duplicate(nil), "a duplicate of no server")
	assert.False(t, Duplicate(my(2627)), "a duplicate of no server")
	// A deadline calls itself a network timeout, too.
	assert.False(t, Transient(context.DeadlineExceeded), "an ended context is transient")
}

func TestUndone(t *testing.T) {
	for _, err := range []error{pgError("40001"), pgError("40P01"), pgError("55P03"), my(1213),
		my(1020), my(1205), my(3572), ms(1205), ms(1222), ms(3960), ms(3930), liteError(5),
		liteError(517), liteError(6)} {
		assert.True(t, Undone(err), "%v leaves its transaction open", err)
		assert.True(t, Undone(join(err)), "%v leaves its transaction open", err)
	}
	// A server that stops, or cuts the connection, may have committed before.
	for _, err := range []error{nil, pgError("57P01"), pgError("08006"), pgError("40003"), ms(0),
		ms(3902), ms(40613), serverError{number: 596, class: 21}, my(1053), my(1927),
		driver.ErrBadConn, io.ErrUnexpectedEOF, safeError(true), liteError(10)} {
		assert.False(t, Undone(err), "%v undoes its transaction for certain", err)
	}
}

func TestViolated(t *testing.T) {
	for _, err := range []error{pgError("23503"), pgError("23505"), liteError(19), liteError(787)} {
		assert.True(t, Violated(err), "%v violates nothing", err)
		assert.True(t, Violated(join(err)), "%v violates nothing", err)
	}
	for _, err := range []error{nil, pgError("25P01"), pgError("23"), my(1062), liteError(13),
		liteError(1), io.EOF} {
		assert.False(t, Violated(err), "%v violates a constraint", err)
	}
}

func TestFull(t *testing.T) {
	for _, err := range []error{pgError("53100"), my(1021), my(1114), ms(1105), ms(9002),
		liteError(13)} {
		assert.True(t, Full(err), "%v: there is room", err)
		assert.True(t, Full(wrap(err)), "%v: there is room", err)
	}
	for _, err := range []error{nil, pgError("53300"), my(1040), liteError(5), io.EOF} {
		assert.False(t, Full(err), "%v: there is no room", err)
	}
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("wrapped: %w", err)
}

func join(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w, and %w", errors.New("another"), err)
}
