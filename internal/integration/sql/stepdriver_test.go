package sql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An interceptor gets what is about to be sent to the database, and sends it with do.
type interceptor func(what string, do func() error) error

// openIntercepted is openDB with an interceptor between database/sql and the driver.
func openIntercepted(t *testing.T, name, dsn string, intercept interceptor) *sql.DB {
	t.Helper()
	bare, err := sql.Open(name, dsn)
	require.NoError(t, err)
	defer func() { _ = bare.Close() }()
	db := sql.OpenDB(interceptedConnector{bare.Driver(), dsn, intercept})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

type interceptedConnector struct {
	driver    driver.Driver
	dsn       string
	intercept interceptor
}

func (c interceptedConnector) Driver() driver.Driver { return c.driver }

func (c interceptedConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &interceptedConn{conn.(fullConn), c.intercept}, nil
}

// fullConn is what the connections of all our drivers have.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
}

type interceptedConn struct {
	fullConn
	intercept interceptor
}

// intercept passes a call that returns a result through on.
func intercept[T any](by interceptor, what string, do func() (T, error)) (result T, err error) {
	err = by(what, func() error { result, err = do(); return err })
	return result, err
}

// briefly names a statement by its first words.
func briefly(verb, query string) string {
	words := strings.Fields(query)
	return verb + ": " + strings.Join(words[:min(3, len(words))], " ")
}

func (c *interceptedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := intercept(c.intercept, "begin", func() (driver.Tx, error) {
		return c.fullConn.BeginTx(ctx, opts)
	})
	return interceptedTx{tx, c.intercept}, err
}

func (c *interceptedConn) ExecContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Result, error) {
	return intercept(c.intercept, briefly("exec", query), func() (driver.Result, error) {
		return c.fullConn.ExecContext(ctx, query, args)
	})
}

func (c *interceptedConn) QueryContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Rows, error) {
	return intercept(c.intercept, briefly("query", query), func() (driver.Rows, error) {
		return c.fullConn.QueryContext(ctx, query, args)
	})
}

func (c *interceptedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := intercept(c.intercept, briefly("prepare", query), func() (driver.Stmt, error) {
		return c.fullConn.PrepareContext(ctx, query)
	})
	if err != nil {
		return nil, err
	}
	return interceptedStmt{stmt.(fullStmt), query, c.intercept}, nil
}

func (c *interceptedConn) CheckNamedValue(v *driver.NamedValue) error {
	return checkNamed(c.fullConn, v)
}

type fullStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type interceptedStmt struct {
	fullStmt
	query     string
	intercept interceptor
}

func (s interceptedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result,
	error) {
	return intercept(s.intercept, briefly("exec", s.query), func() (driver.Result, error) {
		return s.fullStmt.ExecContext(ctx, args)
	})
}

func (s interceptedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows,
	error) {
	return intercept(s.intercept, briefly("query", s.query), func() (driver.Rows, error) {
		return s.fullStmt.QueryContext(ctx, args)
	})
}

func (s interceptedStmt) CheckNamedValue(v *driver.NamedValue) error {
	return checkNamed(s.fullStmt, v)
}

// checkNamed leaves the arguments to the driver if it wants them.
func checkNamed(inner any, v *driver.NamedValue) error {
	if c, ok := inner.(driver.NamedValueChecker); ok {
		return c.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type interceptedTx struct {
	driver.Tx
	intercept interceptor
}

func (tx interceptedTx) Commit() error   { return tx.intercept("commit", tx.Tx.Commit) }
func (tx interceptedTx) Rollback() error { return tx.intercept("rollback", tx.Tx.Rollback) }
