package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	// costFactor limits a statement that finds nothing: it runs again only after costFactor times
	// as long as it took.
	costFactor = 10
	// moveFor is how long one run moves scheduled messages. Meanwhile the dispatcher gives no shard
	// to a worker, and the moved messages wait with all others.
	moveFor = 100 * time.Millisecond
)

// releaseDue moves scheduled messages to the other messages when their time has come. It asks the
// database when the next one is due. It asks again at least every PollMax, because another process
// may have inserted messages meanwhile. It returns the pause before the next poll.
func (d *dispatcher) releaseDue(ctx context.Context) time.Duration {
	now := time.Now()
	if d.relay.box.askDue.Swap(false) {
		d.askDue = now
	}
	if now.Before(d.askDue) {
		return d.askDue.Sub(now)
	}
	moved, next, err := d.relay.releaseDue(ctx)
	if err != nil && ctx.Err() == nil {
		d.relay.cfg.OnError(err)
	}
	if moved {
		d.found = time.Now()
		return pollGap // the next poll finds them, and there may be more
	}
	wait := d.relay.cfg.PollMax
	if err == nil { // after an error no longer than PollMax: nobody says when the database is back
		if next >= 0 {
			wait = min(wait, next)
		}
		wait = max(wait, costFactor*time.Since(now))
	}
	d.askDue = time.Now().Add(wait)
	return wait
}

// releaseDue returns the time until the next scheduled message is due, negative when there is none
// or when another relay moves messages.
func (r *Relay) releaseDue(ctx context.Context) (moved bool, next time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if next, err = r.nextDue(ctx); err != nil || next != overdue {
		return false, next, err
	}
	n, err := r.move(ctx)
	if err != nil {
		return n > 0, -1, fmt.Errorf("outbox: scheduled messages: %w", err)
	}
	return n > 0, -1, nil
}

// overdue is what nextDue returns for a message whose time has come.
const overdue = -2

// nextDue returns -1 when there is no scheduled message.
func (r *Relay) nextDue(ctx context.Context) (time.Duration, error) {
	from, end, err := r.box.fresh(ctx, r.cfg.DB)
	if err != nil {
		return -1, fmt.Errorf("outbox: scheduled messages: %w", err)
	}
	defer end()
	var until int64
	err = from.QueryRowContext(ctx, r.statements.nextDue).Scan(&until)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return -1, nil
	case err != nil:
		return -1, fmt.Errorf("outbox: scheduled messages: %w", err)
	case until <= 0:
		return overdue, nil
	}
	return time.Duration(min(until, maxPause.Microseconds())) * time.Microsecond, nil
}

// move moves due messages, one batch in each transaction, until none is left or moveFor is over.
// Each batch begins at the time where the batch before it ended, so that it does not read the
// deleted rows again. It counts the committed messages.
func (r *Relay) move(ctx context.Context) (all int, err error) {
	began := time.Now()
	for low := int64(math.MinInt64); ; {
		n, last, err := r.moveBatch(ctx, low)
		if err != nil {
			return all, err
		}
		if all += n; n < r.cfg.BatchSize || time.Since(began) >= moveFor {
			return all, nil
		}
		low = last
	}
}

func (r *Relay) moveBatch(ctx context.Context, low int64) (n int, last int64, err error) {
	tx, err := r.apart(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer tx.end()
	var one int
	err = tx.QueryRowContext(ctx, r.statements.lockDue).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, nil // another relay moves them
	}
	if err != nil {
		return 0, 0, err
	}
	ids, last, err := r.due(ctx, tx.Tx, low)
	if err != nil || len(ids) == 0 {
		return 0, 0, err
	}
	for _, text := range []string{r.statements.release, r.statements.unschedule} {
		query, args := r.box.dialect.withIDs(text, ids)
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return 0, 0, err
		}
	}
	return len(ids), last, tx.Commit()
}

// due returns the ids of a batch, and the time of the last one.
func (r *Relay) due(ctx context.Context, tx *sql.Tx, low int64) (ids []int64, last int64,
	err error) {
	rows, err := tx.QueryContext(ctx, r.statements.due, low, r.cfg.BatchSize)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id, &last); err != nil {
			return nil, 0, err
		}
		ids = append(ids, id)
	}
	return ids, last, rows.Err()
}
