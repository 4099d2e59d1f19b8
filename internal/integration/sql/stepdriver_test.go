package sql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A teller is told what is about to be sent to the database, and does it.
type teller func(what string, do func() error) error

// openTold is openDB with a teller between database/sql and the driver.
func openTold(t *testing.T, name, dsn string, tell teller) *sql.DB {
	t.Helper()
	bare, err := sql.Open(name, dsn)
	require.NoError(t, err)
	defer func() { _ = bare.Close() }()
	db := sql.OpenDB(toldConnector{bare.Driver(), dsn, tell})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

type toldConnector struct {
	driver driver.Driver
	dsn    string
	tell   teller
}

func (c toldConnector) Driver() driver.Driver { return c.driver }

func (c toldConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &toldConn{conn.(fullConn), c.tell}, nil
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

type toldConn struct {
	fullConn
	tell teller
}

// told is tell for what has a result.
func told[T any](tell teller, what string, do func() (T, error)) (result T, err error) {
	err = tell(what, func() error { result, err = do(); return err })
	return result, err
}

// briefly names a statement by its first words.
func briefly(verb, query string) string {
	words := strings.Fields(query)
	return verb + ": " + strings.Join(words[:min(3, len(words))], " ")
}

func (c *toldConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := told(c.tell, "begin", func() (driver.Tx, error) {
		return c.fullConn.BeginTx(ctx, opts)
	})
	return toldTx{tx, c.tell}, err
}

func (c *toldConn) ExecContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Result, error) {
	return told(c.tell, briefly("exec", query), func() (driver.Result, error) {
		return c.fullConn.ExecContext(ctx, query, args)
	})
}

func (c *toldConn) QueryContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Rows, error) {
	return told(c.tell, briefly("query", query), func() (driver.Rows, error) {
		return c.fullConn.QueryContext(ctx, query, args)
	})
}

func (c *toldConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := told(c.tell, briefly("prepare", query), func() (driver.Stmt, error) {
		return c.fullConn.PrepareContext(ctx, query)
	})
	if err != nil {
		return nil, err
	}
	return toldStmt{stmt.(fullStmt), query, c.tell}, nil
}

func (c *toldConn) CheckNamedValue(v *driver.NamedValue) error { return checkNamed(c.fullConn, v) }

type fullStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type toldStmt struct {
	fullStmt
	query string
	tell  teller
}

func (s toldStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result,
	error) {
	return told(s.tell, briefly("exec", s.query), func() (driver.Result, error) {
		return s.fullStmt.ExecContext(ctx, args)
	})
}

func (s toldStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return told(s.tell, briefly("query", s.query), func() (driver.Rows, error) {
		return s.fullStmt.QueryContext(ctx, args)
	})
}

func (s toldStmt) CheckNamedValue(v *driver.NamedValue) error { return checkNamed(s.fullStmt, v) }

// checkNamed leaves the arguments to the driver if it wants them.
func checkNamed(inner any, v *driver.NamedValue) error {
	if c, ok := inner.(driver.NamedValueChecker); ok {
		return c.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type toldTx struct {
	driver.Tx
	tell teller
}

func (tx toldTx) Commit() error   { return tx.tell("commit", tx.Tx.Commit) }
func (tx toldTx) Rollback() error { return tx.tell("rollback", tx.Tx.Rollback) }
