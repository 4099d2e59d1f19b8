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
	owner       dedup.Token
	fingerprint dedup.Fingerprint
	at          time.Time
	age         time.Duration
}

// query asks a transaction for rows, a native one in its own way.
func query(ctx context.Context, tx Tx, text string, args []any) (Rows, error) {
	if native, ok := tx.(NativeTx); ok {
		return native.QueryRows(ctx, text, args...)
	}
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err // a nil *sql.Rows would not be a nil Rows
	}
	return rows, nil
}

// queryRows reads all rows and closes them before it returns: the next statement of the
// transaction needs the connection. An INSERT can fail as late as Close.
func queryRows(ctx context.Context, tx Tx, text string, args []any) (found []row, err error) {
	rows, err := query(ctx, tx, text, args)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := rows.Close(); err == nil && closeErr != nil {
			found, err = nil, closeErr
		}
	}()
	for rows.Next() {
		r, err := scanRow(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	// A broken connection ends the loop just as the last row does.
	return found, rows.Err()
}

// scanRow reads the columns that every statement of a dialect returns.
func scanRow(rows Rows) (row, error) {
	var id, owner, fingerprint []byte
	var at, age int64
	if err := rows.Scan(&id, &owner, &fingerprint, &at, &age); err != nil {
		return row{}, err
	}
	r := row{at: time.UnixMicro(at).UTC(), age: max(0, time.Duration(age)*time.Microsecond)}
	if copy(r.id[:], id) != len(id) || len(id) != len(r.id) ||
		copy(r.owner[:], owner) != len(owner) || len(owner) != len(r.owner) ||
		len(fingerprint) != 0 && len(fingerprint) != len(r.fingerprint) {
		return row{}, fmt.Errorf("%w: columns of %d, %d and %d bytes", dedup.ErrUnreadable, len(id), len(owner), len(fingerprint))
	}
	copy(r.fingerprint[:], fingerprint)
	return r, nil
}
