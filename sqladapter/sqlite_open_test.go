package sqladapter

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plainDriver has only the methods that a driver must have. It is its own connection, and records
// the statements.
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

// TestOpenSQLiteOfAPlainDriver: the guard adds nothing that the driver does not have.
func TestOpenSQLiteOfAPlainDriver(t *testing.T) {
	d := &plainDriver{}
	sql.Register("onceward_plain", d)
	db, err := OpenSQLite("onceward_plain", "")
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	require.NoError(t, db.Ping())
	assert.Equal(t, driver.Driver(d), db.Driver())
	_, err = db.Exec("outside", 1)
	assert.NoError(t, err)
	_, err = db.Exec("?!")
	assert.Error(t, err, "a statement that cannot be prepared")
	tx := func() *sql.Tx {
		tx, err := db.Begin()
		require.NoError(t, err)
		return tx
	}
	good := tx()
	res, err := good.Exec("insert", 1, "two", []byte("three"))
	require.NoError(t, err)
	n, err := res.RowsAffected()
	require.NoError(t, err)
	assert.EqualValues(t, 3, n)
	rows, err := good.Query("select")
	require.NoError(t, err)
	assert.False(t, rows.Next())
	assert.NoError(t, rows.Err())
	assert.NoError(t, rows.Close()) //nolint:sqlclosecheck // COMMIT is next
	assert.NoError(t, good.Commit())
	bad := tx()
	_, err = bad.Exec("ends")
	assert.Error(t, err, "the error that ends it")
	assert.False(t, Retryable(err), "the error that ends it")
	for range 2 {
		_, err := bad.Exec("after")
		assert.True(t, Retryable(err), "what follows: %v", err)
		_, err = bad.Query("after") //nolint:rowserrcheck,sqlclosecheck // there are none
		assert.True(t, Retryable(err), "what follows: %v", err)
	}
	err = bad.Commit()
	assert.True(t, Retryable(err), "COMMIT: %v", err)
	last := tx()
	_, err = last.Exec("ends")
	assert.Error(t, err, "it has not ended")
	assert.NoError(t, last.Rollback(), "ROLLBACK")
	_, err = db.Exec("outside")
	assert.NoError(t, err)
	want := []string{"outside", "insert", "select", "COMMIT", beginAnother, "ROLLBACK",
		beginAnother, "ROLLBACK", "outside"}
	assert.Equal(t, want, d.sent)
	_, err = OpenSQLite("onceward_nobody", "")
	assert.Error(t, err, "a driver that is not registered")
}
