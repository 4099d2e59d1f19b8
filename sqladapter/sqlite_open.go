package sqladapter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// OpenSQLite is sql.Open for SQLite, with transactions that cannot end unnoticed. When a write is
// interrupted because its context has ended, or finds the disk full, SQLite rolls the transaction
// back by itself, and then commits each next statement alone. This pool refuses those statements,
// and COMMIT, until the transaction is rolled back, as PostgreSQL does; [Retryable] is true of that
// error. It does so for every transaction that BeginTx of the pool or of a *sql.Conn has begun,
// whoever uses it.
//
// driverName is the name of a registered driver: "sqlite", "sqlite3". Like sql.Open it connects to
// nothing yet. The function of [sql.Conn.Raw] gets a value whose method Unwrap() driver.Conn
// returns the driver's connection. Each statement of a transaction sends a BEGIN first, which
// SQLite refuses at once: some microseconds, without access to the file.
func OpenSQLite(driverName, dsn string) (*sql.DB, error) {
	db, err := sql.Open(driverName, dsn)
	if err != nil {
		return nil, err
	}
	d := db.Driver()
	if err := db.Close(); err != nil { // nothing is open
		return nil, err
	}
	var c driver.Connector = dsnConnector{dsn, d}
	if d, ok := d.(driver.DriverContext); ok {
		if c, err = d.OpenConnector(dsn); err != nil {
			return nil, err
		}
	}
	return sql.OpenDB(liteConnector{c}), nil
}

// dsnConnector is for a driver without connectors, as in database/sql.
type dsnConnector struct {
	dsn    string
	driver driver.Driver
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

type liteConnector struct{ driver.Connector }

func (c liteConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &liteConn{Conn: conn}, nil
}

// liteConn checks before each statement of a transaction whether it is still open. database/sql
// makes one call at a time. Where the driver's connection lacks a method, liteConn lets
// database/sql do without it.
type liteConn struct {
	driver.Conn
	inTx, ended bool
}

// Unwrap returns the driver's connection.
func (c *liteConn) Unwrap() driver.Conn { return c.Conn }

// open sends BEGIN, which is refused as long as the transaction is open. Once it is not open, BEGIN
// begins a new transaction instead, which is never committed.
func (c *liteConn) open() error {
	if !c.inTx {
		return nil
	}
	if !c.ended {
		err := c.begin()
		if withinAnother(err) {
			return nil
		}
		c.ended = true // also when BEGIN failed and nobody knows
	}
	return fmt.Errorf("sqladapter: %w: SQLite does so after an error of a statement", errRolledBack)
}

// begin uses no context: an interrupted BEGIN would not answer the question.
func (c *liteConn) begin() error {
	ctx := context.Background()
	if e, ok := c.Conn.(driver.ExecerContext); ok {
		if _, err := e.ExecContext(ctx, beginAnother, nil); !errors.Is(err, driver.ErrSkip) {
			return err
		}
	}
	s, err := c.prepare(ctx, beginAnother)
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, nil)
	return errors.Join(err, s.Close())
}

func (c *liteConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	var tx driver.Tx
	var err error
	if b, ok := c.Conn.(driver.ConnBeginTx); ok {
		tx, err = b.BeginTx(ctx, opts)
	} else {
		tx, err = c.Conn.Begin() //nolint:staticcheck // of a driver that has no other
	}
	if err != nil {
		return nil, err
	}
	c.inTx, c.ended = true, false
	return liteTx{tx, c}, nil
}

func (c *liteConn) ExecContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Result, error) {
	e, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	if err := c.open(); err != nil {
		return nil, err
	}
	return e.ExecContext(ctx, query, args)
}

func (c *liteConn) QueryContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Rows, error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	if err := c.open(); err != nil {
		return nil, err
	}
	return q.QueryContext(ctx, query, args)
}

func (c *liteConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *liteConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c *liteConn) prepare(ctx context.Context, query string) (*liteStmt, error) {
	var s driver.Stmt
	var err error
	if p, ok := c.Conn.(driver.ConnPrepareContext); ok {
		s, err = p.PrepareContext(ctx, query)
	} else {
		s, err = c.Conn.Prepare(query)
	}
	if err != nil {
		return nil, err
	}
	return &liteStmt{s, c}, nil
}

func (c *liteConn) Ping(ctx context.Context) error {
	if p, ok := c.Conn.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

func (c *liteConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *liteConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

func (c *liteConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// liteTx is a transaction of a liteConn.
type liteTx struct {
	driver.Tx
	conn *liteConn
}

// Commit returns an error when SQLite has ended the transaction, and rolls back the one that was
// begun instead.
func (t liteTx) Commit() error {
	if err := t.conn.open(); err != nil {
		return errors.Join(err, t.Rollback())
	}
	t.conn.inTx = false
	return t.Tx.Commit()
}

func (t liteTx) Rollback() error {
	_ = t.conn.open() // so that there is something to roll back
	t.conn.inTx = false
	return t.Tx.Rollback()
}

// liteStmt may have been prepared before the transaction in which it runs.
type liteStmt struct {
	driver.Stmt
	conn *liteConn
}

func (s *liteStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result,
	error) {
	if err := s.conn.open(); err != nil {
		return nil, err
	}
	return s.exec(ctx, args)
}

func (s *liteStmt) exec(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if e, ok := s.Stmt.(driver.StmtExecContext); ok {
		return e.ExecContext(ctx, args)
	}
	return s.Stmt.Exec(unnamed(args)) //nolint:staticcheck // of a driver that has no other
}

func (s *liteStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows,
	error) {
	if err := s.conn.open(); err != nil {
		return nil, err
	}
	if q, ok := s.Stmt.(driver.StmtQueryContext); ok {
		return q.QueryContext(ctx, args)
	}
	return s.Stmt.Query(unnamed(args)) //nolint:staticcheck // of a driver that has no other
}

func (s *liteStmt) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return s.conn.CheckNamedValue(v)
}

func (s *liteStmt) ColumnConverter(i int) driver.ValueConverter {
	if c, ok := s.Stmt.(driver.ColumnConverter); ok { //nolint:staticcheck // likewise
		return c.ColumnConverter(i)
	}
	return driver.DefaultParameterConverter
}

func unnamed(args []driver.NamedValue) []driver.Value {
	values := make([]driver.Value, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	return values
}
