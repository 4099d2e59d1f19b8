// Package sqlscript is a fake database for the tests of sqladapter and sqlstore: a driver that
// knows its statements in advance.
package sqlscript

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
)

// Step is one statement that a script expects, and the answer to it.
type Step struct {
	Query string
	// Like is a part of the statement, where the whole is not known in advance.
	Like string
	// Rows returns the rows for the arguments; nil returns none.
	Rows func(args []any) [][]driver.Value
	// Affected is how many rows a statement without rows has changed.
	Affected int64
	// Exec computes Affected from the statement and Count from the arguments. Text returns the rows
	// for the statement.
	Exec  func(text string) int64
	Text  func(text string) [][]driver.Value
	Count func(args []any) int64
	// Err fails the statement; NextErr ends its rows early; CloseErr fails their Close.
	Err, NextErr, CloseErr error
}

// Script is a database/sql driver that knows its statements in advance and fails the test on any
// other. It serves one connection at a time.
type Script struct {
	t     *testing.T
	Steps []Step
	Args  [][]any // of every statement that was run
	// Known answers statements that no step has to expect; nil knows none.
	Known func(query string) (answer Step, known bool)

	Begins, Commits []error // results of the next calls; nil when there are none left
	// OnCommit, if set, answers instead of Commits. It gets the transaction's context.
	OnCommit                     func(ctx context.Context) error
	TxContext                    context.Context
	Isolation                    driver.IsolationLevel
	Begun, Committed, RolledBack int
}

// Open returns a pool on the script, and checks at the end that all steps were run.
func Open(t *testing.T, steps ...Step) (*sql.DB, *Script) {
	t.Helper()
	s := &Script{t: t, Steps: steps}
	db := sql.OpenDB((*conn)(s))
	t.Cleanup(func() {
		_ = db.Close()
		if len(s.Steps) > 0 {
			t.Errorf("%d statements were not run, next: %s", len(s.Steps),
				s.Steps[0].Query+s.Steps[0].Like)
		}
	})
	return db, s
}

// conn is the driver of a script, its connection, and its transaction.
type conn Script

func (s *conn) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *conn) Driver() driver.Driver                        { return nil }
func (s *conn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("the script does not prepare")
}
func (s *conn) Close() error { return nil }

// ResetSession and IsValid keep a connection whose transaction was canceled, as drivers do.
func (s *conn) ResetSession(context.Context) error { return nil }
func (s *conn) IsValid() bool                      { return true }
func (s *conn) Begin() (driver.Tx, error) {
	return nil, errors.New("the script begins under a context")
}

func (s *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	s.Begun++
	s.TxContext, s.Isolation = ctx, opts.Isolation
	return s, Shift(&s.Begins)
}

func (s *conn) Commit() error {
	s.Committed++
	if s.OnCommit != nil {
		return s.OnCommit(s.TxContext)
	}
	return Shift(&s.Commits)
}
func (s *conn) Rollback() error { s.RolledBack++; return nil }

// Shift takes the first of the errors; nil when there are none left.
func Shift(errs *[]error) error {
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	*errs = (*errs)[1:]
	return err
}

func (s *conn) next(query string, named []driver.NamedValue) (Step, []any) {
	s.t.Helper()
	if s.Known != nil && (len(s.Steps) == 0 || s.Steps[0].Query != query) {
		if st, ok := s.Known(query); ok {
			return st, nil
		}
	}
	args := make([]any, len(named))
	for i, v := range named {
		args[i] = v.Value
	}
	s.Args = append(s.Args, args)
	if len(s.Steps) == 0 {
		s.t.Errorf("unexpected statement: %s", query)
		return Step{Err: errors.New("script: at its end")}, nil
	}
	st := s.Steps[0]
	s.Steps = s.Steps[1:]
	if query != st.Query && (st.Like == "" || !strings.Contains(query, st.Like)) {
		s.t.Errorf("statement\n%s\nwant\n%s", query, st.Query+st.Like)
		return Step{Err: errors.New("script: another statement")}, nil
	}
	return st, args
}

func (s *conn) QueryContext(_ context.Context, query string,
	named []driver.NamedValue) (driver.Rows, error) {
	st, args := s.next(query, named)
	if st.Err != nil {
		return nil, st.Err
	}
	r := &scriptRows{nextErr: st.NextErr, closeErr: st.CloseErr}
	if st.Rows != nil {
		r.left = st.Rows(args)
	}
	if st.Text != nil {
		r.left = st.Text(query)
	}
	return r, nil
}

func (s *conn) ExecContext(_ context.Context, query string,
	named []driver.NamedValue) (driver.Result, error) {
	st, args := s.next(query, named)
	if st.Exec != nil && st.Err == nil {
		st.Affected = st.Exec(query)
	}
	if st.Count != nil && st.Err == nil {
		st.Affected = st.Count(args)
	}
	return driver.RowsAffected(st.Affected), st.Err
}

type scriptRows struct {
	left              [][]driver.Value
	nextErr, closeErr error
}

func (r *scriptRows) Columns() []string {
	if len(r.left) == 0 {
		return nil
	}
	return make([]string, len(r.left[0]))
}
func (r *scriptRows) Close() error { return r.closeErr }
func (r *scriptRows) Next(dest []driver.Value) error {
	if len(r.left) == 0 {
		if r.nextErr != nil {
			return r.nextErr
		}
		return io.EOF
	}
	copy(dest, r.left[0])
	r.left = r.left[1:]
	return nil
}

// MySQLError has the fields of go-sql-driver's error.
type MySQLError struct {
	Number  uint16
	Message string
}

// Error implements error.
func (e *MySQLError) Error() string { return "server says " + strconv.Itoa(int(e.Number)) }

// NewMySQLError returns the error with a number.
func NewMySQLError(n uint16) error { return &MySQLError{Number: n} }
