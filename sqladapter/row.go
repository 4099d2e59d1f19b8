package sqladapter

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup"
)

// row is a stored mark.
type row struct {
	id          dedup.ID
	stamp       int64
	fingerprint dedup.Fingerprint
	at          time.Time
	age         time.Duration
	result      []byte
	// ours says that this very call has inserted the row. A row that was found is never
	// ours, whatever its stamp: another statement may have drawn the same bits.
	ours bool
}

// query asks a transaction for rows, a native one in its own way.
func query(ctx context.Context, tx Tx, s statement) (Rows, error) {
	if native, ok := tx.(NativeTx); ok {
		return native.QueryRows(ctx, s.text, s.args...)
	}
	rows, err := tx.QueryContext(ctx, s.text, s.args...) //nolint:rowserrcheck // by who reads them
	if err != nil {
		return nil, err // a nil *sql.Rows would not be a nil Rows
	}
	return rows, nil
}

// queryRows reads all rows and closes them before it returns: the next statement of the
// transaction needs the connection. An INSERT can fail as late as Close.
func queryRows(ctx context.Context, tx Tx, s statement, scan func(Rows) (row, error)) (found []row, err error) {
	rows, err := query(ctx, tx, s)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := rows.Close(); err == nil && closeErr != nil {
			found, err = nil, closeErr
		}
	}()
	for rows.Next() {
		r, err := scan(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	// A broken connection ends the loop just as the last row does.
	return found, rows.Err()
}

// scanInserted reads a row that has just been written: id and stamp.
func scanInserted(rows Rows) (row, error) {
	var id []byte
	r := row{ours: true}
	if err := rows.Scan(&id, &r.stamp); err != nil {
		return row{}, err
	}
	r.at = time.UnixMilli(r.stamp >> saltBits).UTC()
	return r, r.setColumns(id, nil)
}

// scanLoaded reads a row that was found, as load returns it.
func scanLoaded(rows Rows) (row, error) {
	var id, fingerprint []byte
	var r row
	var at, now int64
	if err := rows.Scan(&id, &r.stamp, &fingerprint, &at, &now, &r.result); err != nil {
		return row{}, err
	}
	if len(r.result) == 0 {
		r.result = nil // some drivers do not tell an empty one from NULL
	}
	r.at = time.UnixMilli(at).UTC()
	r.age = max(0, time.Duration(now-at)*time.Millisecond)
	return r, r.setColumns(id, fingerprint)
}

// scanID reads an id alone.
func scanID(rows Rows) (row, error) {
	var id []byte
	var r row
	if err := rows.Scan(&id); err != nil {
		return row{}, err
	}
	return r, r.setColumns(id, nil)
}

func (r *row) setColumns(id, fingerprint []byte) error {
	if len(id) != len(r.id) || len(fingerprint) != 0 && len(fingerprint) != len(r.fingerprint) {
		return fmt.Errorf("%w: columns of %d and %d bytes", dedup.ErrUnreadable, len(id), len(fingerprint))
	}
	copy(r.id[:], id)
	copy(r.fingerprint[:], fingerprint)
	return nil
}
