package sqladapter

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plainDriver has what a driver must have, and nothing else. Its connection is one, and keeps what
// it is sent.
type plainDriver struct {
	inTx bool
	sent []string
}

func (d *plainDriver) Open(string) (driver.Conn, error) { return d, nil }
func (d *plainDriver) Close() error                     { return nil }
func (d *plainDriver) Begin() (driver.Tx, error)        { d.inTx = true; return d, nil }
func (d *plainDriver) Commit() error                    { return d.end("COMMIT") }
func (d *plainDriver) Rollback() error                  { return d.end("ROLLBACK") }
func (d *plainDriver) Prepare(query string) (driver.Stmt, error) {
	if query == "?!" {
		return nil, errors.New("syntax error")
	}
	return plainStmt{d, query}, nil
}

func (d *plainDriver) end(how string) error {
	if d.sent = append(d.sent, how); !d.inTx {
		return errors.New("no transaction is active")
	}
	d.inTx = false
	return nil
}

type plainStmt struct {
	d     *plainDriver
	query string
}

func (plainStmt) Close() error  { return nil }
func (plainStmt) NumInput() int { return -1 }
func (s plainStmt) Exec(args []driver.Value) (driver.Result, error) {
	if s.query == beginAnother && s.d.inTx {
		return nil, errors.New("cannot start a transaction within a transaction")
	}
	switch s.query {
	case beginAnother:
		s.d.inTx = true
	case "ends":
		s.d.inTx = false
		return nil, errors.New("full")
	}
	s.d.sent = append(s.d.sent, s.query)
	return driver.RowsAffected(len(args)), nil
}

func (s plainStmt) Query([]driver.Value) (driver.Rows, error) {
	s.d.sent = append(s.d.sent, s.query)
	return plainRows{}, nil
}

type plainRows struct{}

func (plainRows) Columns() []string         { return []string{"a"} }
func (plainRows) Close() error              { return nil }
func (plainRows) Next([]driver.Value) error { return io.EOF }

// TestOpenSQLiteOfAPlainDriver: whatever a driver leaves out is as it is without the guard.
func TestOpenSQLiteOfAPlainDriver(t *testing.T) {
	d := &plainDriver{}
	sql.Register("onceward_plain", d)
	db, err := OpenSQLite("onceward_plain", "")
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if err := db.Ping(); err != nil || db.Driver() != driver.Driver(d) {
		t.Error(err, db.Driver())
	}
	if _, err := db.Exec("outside", 1); err != nil {
		t.Error(err)
	}
	if _, err := db.Exec("?!"); err == nil {
		t.Error("a statement that cannot be prepared")
	}
	tx := func() *sql.Tx {
		tx, err := db.Begin()
		require.NoError(t, err)
		return tx
	}
	good := tx()
	res, err := good.Exec("insert", 1, "two", []byte("three"))
	require.NoError(t, err)
	if n, err := res.RowsAffected(); n != 3 || err != nil {
		t.Error(n, err)
	}
	rows, err := good.Query("select")
	if err != nil || rows.Next() || rows.Err() != nil || rows.Close() != nil { //nolint:sqlclosecheck // COMMIT is next
		t.Error(err, rows.Err())
	}
	assert.NoError(t, good.Commit())
	bad := tx()
	if _, err := bad.Exec("ends"); err == nil || Retryable(err) {
		t.Errorf("the error that ends it is %v", err)
	}
	for range 2 {
		if _, err := bad.Exec("after"); !Retryable(err) {
			t.Errorf("what follows: %v", err)
		}
		if _, err := bad.Query("after"); !Retryable(err) { //nolint:rowserrcheck,sqlclosecheck // there are none
			t.Errorf("what follows: %v", err)
		}
	}
	if err := bad.Commit(); !Retryable(err) {
		t.Errorf("COMMIT: %v", err)
	}
	last := tx()
	if _, err := last.Exec("ends"); err == nil {
		t.Error("it has not ended")
	}
	assert.NoError(t, last.Rollback(), "ROLLBACK")
	if _, err := db.Exec("outside"); err != nil {
		t.Error(err)
	}
	want := []string{"outside", "insert", "select", "COMMIT", beginAnother, "ROLLBACK",
		beginAnother, "ROLLBACK", "outside"}
	if !slices.Equal(d.sent, want) {
		t.Errorf("sent %q, want %q", d.sent, want)
	}
	if _, err := OpenSQLite("onceward_nobody", ""); err == nil {
		t.Error("a driver that is not registered")
	}
}
