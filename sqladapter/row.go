package sqladapter

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/native"
)

// row is a stored mark.
type row struct {
	id          driver.ID
	stamp       int64
	fingerprint driver.Fingerprint
	at          time.Time
	age         time.Duration
	result      []byte
	// unread says that the result, if there is one, was not read.
	unread bool
	// inPrevious says that the row is in the previous table.
	inPrevious bool
	// ours says that this very call has inserted the row. A row that was found is never
	// ours, whatever its stamp: another statement may have drawn the same bits.
	ours bool
}

// query asks a transaction for rows; a native transaction has its own method.
func query(ctx context.Context, tx Tx, s statement) (native.Rows, error) {
	if native, ok := tx.(native.Tx); ok {
		return native.QueryRows(ctx, s.text, s.args...)
	}
	rows, err := tx.QueryContext(ctx, s.text, s.args...) //nolint:rowserrcheck // by who reads them
	if err != nil {
		return nil, err // a nil *sql.Rows would not be a nil Rows
	}
	return rows, nil
}

// scanOne reads one row; its error is sql.ErrNoRows when there is none.
func scanOne(ctx context.Context, tx Tx, text string, dest ...any) error {
	return scanRow(ctx, tx, statement{text: text}, dest...)
}

func scanRow(ctx context.Context, tx Tx, s statement, dest ...any) (err error) {
	rows, err := query(ctx, tx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if rows.Next() {
		return rows.Scan(dest...)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return sql.ErrNoRows
}

// queryRows reads all rows, about as many as expected, and closes them before it returns: the
// next statement of the transaction needs the connection. An INSERT can fail as late as Close.
func queryRows(ctx context.Context, tx Tx, s statement, expected int,
	read func(*columns, native.Rows, *row) error) (found []row, err error) {
	rows, err := query(ctx, tx, s)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := rows.Close(); err == nil && closeErr != nil {
			found, err = nil, closeErr
		}
	}()
	found = make([]row, 0, expected)
	var c columns
	for rows.Next() {
		found = append(found, row{})
		if err := read(&c, rows, &found[len(found)-1]); err != nil {
			return nil, err
		}
	}
	// A broken connection ends the loop just as the last row does.
	return found, rows.Err()
}

// columns has the variables that rows are scanned into; one serves all rows of a query.
type columns struct {
	id, fingerprint []byte
	stamp, at, now  int64
}

// inserted reads a row that has just been written: id and stamp.
func (c *columns) inserted(rows native.Rows, r *row) error {
	if err := rows.Scan(&c.id, &c.stamp); err != nil {
		return err
	}
	r.ours, r.stamp, r.at = true, c.stamp, time.UnixMilli(c.stamp>>saltBits).UTC()
	return r.setColumns(c.id, nil)
}

// loaded reads a row that was found, as load returns it.
func (c *columns) loaded(rows native.Rows, r *row) error {
	if err := rows.Scan(&c.id, &c.stamp, &c.fingerprint, &c.at, &c.now, &r.result); err != nil {
		return err
	}
	return c.found(r)
}

// apart reads a row that was found, without its result.
func (c *columns) apart(rows native.Rows, r *row) error {
	if err := rows.Scan(&c.id, &c.stamp, &c.fingerprint, &c.at, &c.now); err != nil {
		return err
	}
	r.unread = true
	return c.found(r)
}

func (c *columns) found(r *row) error {
	r.stamp, r.at = c.stamp, time.UnixMilli(c.at).UTC()
	r.age = max(0, time.Duration(c.now-c.at)*time.Millisecond)
	r.setResult()
	return r.setColumns(c.id, c.fingerprint)
}

// resultAlone reads an id and its result.
func (c *columns) resultAlone(rows native.Rows, r *row) error {
	if err := rows.Scan(&c.id, &r.result); err != nil {
		return err
	}
	r.setResult()
	return r.setColumns(c.id, nil)
}

// setResult makes an empty result nil: some drivers do not distinguish it from NULL.
func (r *row) setResult() {
	if len(r.result) == 0 {
		r.result = nil
	}
}

// idAlone reads an id.
func (c *columns) idAlone(rows native.Rows, r *row) error {
	if err := rows.Scan(&c.id); err != nil {
		return err
	}
	return r.setColumns(c.id, nil)
}

func (r *row) setColumns(id, fingerprint []byte) error {
	if len(id) != len(r.id) || len(fingerprint) != 0 && len(fingerprint) != len(r.fingerprint) {
		return fmt.Errorf("%w: columns of %d and %d bytes", driver.ErrUnreadable, len(id),
			len(fingerprint))
	}
	copy(r.id[:], id)
	copy(r.fingerprint[:], fingerprint)
	return nil
}
