package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Parked is a message that the broker has refused for good. A separate table keeps it until
// [Outbox.Requeue] puts it back or somebody deletes its row.
type Parked struct {
	Message
	// Row identifies it in the table.
	Row int64
	// Attempts is how often it has failed.
	Attempts int
	// Reason is the last error.
	Reason string
	// Created is when it was inserted, in UTC; zero in a call of RelayConfig.OnPark.
	Created time.Time
	// At is when it was parked, in UTC.
	At time.Time
}

// Parked lists up to limit messages whose Row is larger than after, in ascending order.
func (o *Outbox) Parked(ctx context.Context, db *sql.DB, after int64, limit int) (list []Parked,
	err error) {
	if err := o.checkDB(db); err != nil {
		return nil, err
	}
	if limit < 1 {
		return nil, inputError("limit", fmt.Sprintf("is %d, less than 1", limit))
	}
	from, end, err := o.fresh(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("outbox: parked: %w", err)
	}
	defer end()
	rows, err := from.QueryContext(ctx, o.dialect.parked, after, limit)
	if err != nil {
		return nil, fmt.Errorf("outbox: parked: %w", o.notMigrated(err))
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		p, err := scanParked(rows)
		if err != nil {
			return nil, fmt.Errorf("outbox: parked: %w", err)
		}
		list = append(list, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("outbox: parked: %w", err)
	}
	return list, nil
}

// scanParked leaves out headers that cannot be read, which may be why the message was parked.
func scanParked(rows *sql.Rows) (p Parked, err error) {
	var headers []byte
	var created, at int64
	var null int
	err = rows.Scan(&p.Row, &p.Topic, &p.ID, &p.Key, &headers, &p.Payload, &null, &p.Attempts,
		&p.Reason, &created, &at)
	p.tidy(null != 0)
	p.Headers, _ = decodeHeaders(headers)
	p.Created, p.At = time.UnixMicro(created).UTC(), time.UnixMicro(at).UTC()
	return p, err
}

// Requeue puts parked messages back into the outbox, under their ids, behind all other messages.
// Later messages of their keys may have been published long ago. It skips rows that do not exist; n
// is how many messages it has put back. All of it is one transaction.
func (o *Outbox) Requeue(ctx context.Context, db *sql.DB, rows ...int64) (n int, err error) {
	if err := o.checkDB(db); err != nil {
		return 0, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("outbox: requeue: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	for _, row := range rows {
		back, err := o.requeue(ctx, tx, row)
		if err != nil {
			return 0, fmt.Errorf("outbox: requeue: %w", o.notMigrated(err))
		}
		n += back
	}
	if err := tx.Commit(); err != nil {
		return 0, fmt.Errorf("outbox: requeue: %w", err)
	}
	o.Notify()
	return n, nil
}

func (o *Outbox) requeue(ctx context.Context, tx *sql.Tx, row int64) (int, error) {
	result, err := tx.ExecContext(ctx, o.dialect.requeue, row)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	if err != nil || n == 0 {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, o.dialect.unpark, row)
	return int(n), err
}
