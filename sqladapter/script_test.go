package sqladapter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// step is one statement that a script expects, and what it answers.
type step struct {
	query string
	// like is a part of the statement, where the whole is not known in advance.
	like string
	// rows answers from the arguments; nil answers no rows.
	rows func(args []any) [][]driver.Value
	// affected is how many rows a statement without rows has changed.
	affected int64
	// exec tells it, and text the rows, from the statement; count tells it from the arguments.
	exec  func(text string) int64
	text  func(text string) [][]driver.Value
	count func(args []any) int64
	// err fails the statement; nextErr ends its rows early; closeErr fails their Close.
	err, nextErr, closeErr error
}

// script is a database/sql driver that knows its statements in advance and fails the
// test on any other. It plays one connection at a time.
type script struct {
	t     *testing.T
	steps []step
	args  [][]any // of every statement that was run
	// clocks are the statements that read the database's clock.
	clocks map[string]bool

	begins, commits []error // what the next ones answer; nil when there are none left
	// commit, if set, answers in their place, from the transaction's context.
	commit                       func(ctx context.Context) error
	tx                           context.Context
	isolation                    driver.IsolationLevel
	begun, committed, rolledBack int
}

// openScript returns a pool on the script, and checks at the end that all was run.
func openScript(t *testing.T, steps ...step) (*sql.DB, *script) {
	t.Helper()
	s := &script{t: t, steps: steps, clocks: map[string]bool{}}
	for _, d := range dialects {
		s.clocks[d(tableName{}, 0).clock] = true
	}
	db := sql.OpenDB(s)
	t.Cleanup(func() {
		_ = db.Close()
		if len(s.steps) > 0 {
			t.Errorf("%d statements were not run, next: %s", len(s.steps),
				s.steps[0].query+s.steps[0].like)
		}
	})
	return db, s
}

func beginScript(t *testing.T, steps ...step) (*sql.Tx, *script) {
	t.Helper()
	db, s := openScript(t, steps...)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx, s
}

func (s *script) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *script) Driver() driver.Driver                        { return nil }
func (s *script) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("the script does not prepare")
}
func (s *script) Close() error { return nil }

// ResetSession and IsValid keep a connection whose transaction was cancelled, as drivers do.
func (s *script) ResetSession(context.Context) error { return nil }
func (s *script) IsValid() bool                      { return true }
func (s *script) Begin() (driver.Tx, error) {
	return nil, errors.New("the script begins under a context")
}

func (s *script) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	s.begun++
	s.tx, s.isolation = ctx, opts.Isolation
	return s, shift(&s.begins)
}

func (s *script) Commit() error {
	s.committed++
	if s.commit != nil {
		return s.commit(s.tx)
	}
	return shift(&s.commits)
}
func (s *script) Rollback() error { s.rolledBack++; return nil }

func shift(errs *[]error) error {
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	*errs = (*errs)[1:]
	return err
}

func (s *script) next(query string, named []driver.NamedValue) (step, []any) {
	s.t.Helper()
	if st, ok := s.guards(query); ok {
		return st, nil
	}
	args := make([]any, len(named))
	for i, v := range named {
		args[i] = v.Value
	}
	s.args = append(s.args, args)
	if len(s.steps) == 0 {
		s.t.Errorf("unexpected statement: %s", query)
		return step{err: errors.New("script: at its end")}, nil
	}
	st := s.steps[0]
	s.steps = s.steps[1:]
	if query != st.query && (st.like == "" || !strings.Contains(query, st.like)) {
		s.t.Errorf("statement\n%s\nwant\n%s", query, st.query+st.like)
		return step{err: errors.New("script: another statement")}, nil
	}
	return st, args
}

// guards answers what SQLite and PostgreSQL are asked about every transaction, unless a step does.
func (s *script) guards(query string) (step, bool) {
	if len(s.steps) > 0 && s.steps[0].query == query {
		return step{}, false
	}
	switch query {
	case beginAnother:
		return step{err: errors.New("cannot start a transaction within a transaction (1)")}, true
	case setOwn, releaseOwn:
		return step{}, true
	}
	if s.clocks[query] {
		return step{rows: func([]any) [][]driver.Value {
			return [][]driver.Value{{time.Now().UnixMilli()}}
		}}, true
	}
	if strings.Contains(query, writtenHere) {
		return step{rows: func([]any) [][]driver.Value {
			return [][]driver.Value{{int64(1)}}
		}}, true
	}
	return step{}, false
}

func (s *script) QueryContext(_ context.Context, query string,
	named []driver.NamedValue) (driver.Rows, error) {
	st, args := s.next(query, named)
	if st.err != nil {
		return nil, st.err
	}
	r := &scriptRows{nextErr: st.nextErr, closeErr: st.closeErr}
	if st.rows != nil {
		r.left = st.rows(args)
	}
	if st.text != nil {
		r.left = st.text(query)
	}
	return r, nil
}

func (s *script) ExecContext(_ context.Context, query string,
	named []driver.NamedValue) (driver.Result, error) {
	st, args := s.next(query, named)
	if st.exec != nil && st.err == nil {
		st.affected = st.exec(query)
	}
	if st.count != nil && st.err == nil {
		st.affected = st.count(args)
	}
	return driver.RowsAffected(st.affected), st.err
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
