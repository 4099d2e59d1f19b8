package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

const (
	// sweepBatch is how many published messages one statement reads or deletes.
	sweepBatch = 1000
	// maxSweepPause is the longest pause between two sweeps. With a short Config.History the pause
	// is a quarter of it.
	maxSweepPause = time.Minute
)

// Published is a published message that is kept for Config.History.
type Published struct {
	Message
	// Row identifies it in the table of published messages. It grows in the order of publishing.
	Row int64
	// Attempts is how many failures counted against it before it was published; a failure of its
	// whole topic does not count.
	Attempts int
	// Created is when it was inserted, in UTC, or its Message.NotBefore if that is later.
	Created time.Time
	// At is when the relay moved it from the messages to this table, in UTC.
	At time.Time
}

// Published lists up to limit messages whose Row is larger than after, in ascending order: those
// that were published within Config.History, and some older ones that are not deleted yet. One
// round trip, three with MySQL.
func (o *Outbox) Published(ctx context.Context, db *sql.DB, after int64, limit int) (
	list []Published, err error) {
	if err := o.checkDB(db); err != nil {
		return nil, err
	}
	if limit < 1 {
		return nil, inputError("limit", fmt.Sprintf("is %d, less than 1", limit))
	}
	from, end, err := o.fresh(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("outbox: published: %w", err)
	}
	defer end()
	rows, err := from.QueryContext(ctx, o.dialect.published, after, limit)
	if err != nil {
		return nil, fmt.Errorf("outbox: published: %w", o.notMigrated(err))
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		p, err := scanPublished(rows)
		if err != nil {
			return nil, fmt.Errorf("outbox: published: %w", err)
		}
		list = append(list, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("outbox: published: %w", err)
	}
	return list, nil
}

func scanPublished(rows *sql.Rows) (p Published, err error) {
	var headers []byte
	var created, at int64
	var null int
	err = rows.Scan(&p.Row, &p.Topic, &p.ID, &p.Key, &headers, &p.Payload, &null, &p.Attempts,
		&created, &at)
	p.tidy(null != 0)
	p.Headers, _ = decodeHeaders(headers)
	p.Created, p.At = time.UnixMicro(created).UTC(), time.UnixMicro(at).UTC()
	return p, err
}

// remember keeps published messages, in the transaction that deletes them.
func (r *Relay) remember(ctx context.Context, tx *sql.Tx, no int, ids []int64) error {
	if r.box.history == 0 || len(ids) == 0 {
		return nil
	}
	query, args := r.box.dialect.withIDs(r.statements.keep, ids, no)
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

// sweep deletes published messages that are older than Config.History, until ctx ends. Any number
// of relays may do so.
func (r *Relay) sweep(ctx context.Context) {
	if r.box.history == 0 {
		return
	}
	pause := min(r.box.history/4, maxSweepPause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		if err := r.sweepOnce(ctx); err != nil && ctx.Err() == nil {
			r.cfg.OnError(fmt.Errorf("outbox: history: %w", err))
		}
		timer.Reset(max(pause, costFactor*time.Since(began)))
	}
}

// sweepOnce deletes in the order of publishing, up to the first message that must be kept. Each
// statement begins behind the rows that the one before it has deleted.
func (r *Relay) sweepOnce(ctx context.Context) error {
	for low := int64(0); ; {
		ids, err := r.expired(ctx, low)
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := r.forget(ctx, ids); err != nil || len(ids) < sweepBatch {
			return err
		}
		low = ids[len(ids)-1]
	}
}

func (r *Relay) forget(ctx context.Context, ids []int64) error {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	tx, err := r.apart(ctx)
	if err != nil {
		return err
	}
	defer tx.end()
	query, args := r.box.dialect.withIDs(r.statements.forget, ids)
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return err
	}
	return tx.Commit()
}

func (r *Relay) expired(ctx context.Context, low int64) (ids []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	from, end, err := r.box.fresh(ctx, r.cfg.DB)
	if err != nil {
		return nil, err
	}
	defer end()
	rows, err := from.QueryContext(ctx, r.statements.expired, r.box.history.Microseconds(), low,
		sweepBatch)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		var old int
		if err := rows.Scan(&id, &old); err != nil {
			return nil, err
		}
		if old == 0 {
			break
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
