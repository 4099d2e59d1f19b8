package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// settle deletes what is acknowledged, puts off what has failed and parks what has done so too
// often, in the transaction that holds the lock, and commits.
//
// A COMMIT whose answer is lost needs no question: what it has deleted is gone, and what it
// has not is published again, under the same ids.
func (r *Relay) settle(ctx context.Context, l *locked, no int, v *verdict, delay time.Duration) error {
	if l.tx == nil { // a lease: only now a transaction is needed
		tx, err := r.cfg.DB.BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("outbox: %d messages are published, and will be again: begin: %w", len(v.acknowledged), err)
		}
		l.tx = tx
	}
	parked, err := r.write(ctx, l.tx, no, v, delay)
	if err != nil {
		return fmt.Errorf("outbox: %d messages are published, and will be again: %w", len(v.acknowledged), err)
	}
	err = l.tx.Commit()
	for _, p := range parked { // also when that is not known: rather twice than never
		r.cfg.OnPark(context.WithoutCancel(ctx), p)
	}
	if err != nil {
		return fmt.Errorf("outbox: %d messages are published, and perhaps will be again: commit: %w", len(v.acknowledged), err)
	}
	r.stats.published.Add(int64(len(v.acknowledged)))
	r.stats.parked.Add(int64(len(parked)))
	if len(v.acknowledged) > 0 {
		r.stats.batches.Add(1)
	}
	return nil
}

// write never deletes by a range of ids: a row with a smaller id may have been committed since.
func (r *Relay) write(ctx context.Context, tx *sql.Tx, no int, v *verdict, delay time.Duration) (parked []Parked, err error) {
	d := r.box.dialect
	gone := v.acknowledged
	later := map[int][]int64{} // by the number of failures before
	for _, f := range v.failed {
		if !errors.Is(f.err, ErrRejected) || f.row.attempts+1 < r.cfg.MaxAttempts {
			later[f.row.attempts] = append(later[f.row.attempts], f.row.id)
			continue
		}
		p := newParked(f)
		if _, err := tx.ExecContext(ctx, d.park, p.Reason, no, p.Row); err != nil {
			return nil, fmt.Errorf("park: %w", err)
		}
		parked, gone = append(parked, p), append(gone, p.Row)
	}
	if len(gone) > 0 {
		query, args := d.withIDs(d.remove, gone, no)
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return nil, fmt.Errorf("delete: %w", err)
		}
	}
	for attempts, ids := range later {
		if err := r.putOff(ctx, tx, no, ids, 1, r.cfg.retry().Delay(attempts, 0, nil)); err != nil {
			return nil, err
		}
	}
	var ids []int64
	for _, f := range v.waiting {
		ids = append(ids, f.row.id)
	}
	// Longer than the shard waits: its next turn is for those behind them.
	return parked, r.putOff(ctx, tx, no, ids, 0, 2*delay)
}

func (r *Relay) putOff(ctx context.Context, tx *sql.Tx, no int, ids []int64, count int, delay time.Duration) error {
	if len(ids) == 0 {
		return nil
	}
	query, args := r.box.dialect.withIDs(r.box.dialect.fail, ids, count, delay.Microseconds(), no)
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("put off: %w", err)
	}
	return nil
}

// newParked keeps what a database takes for text.
func newParked(f failure) Parked {
	reason := strings.ReplaceAll(strings.ToValidUTF8(f.err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	m := f.row.Message
	m.Headers = m.Headers[:len(m.Headers)-1] // the last one is the id's
	return Parked{Row: f.row.id, Message: m, Attempts: f.row.attempts + 1, Reason: reason, At: time.Now().UTC()}
}

// tell reports messages that have failed by themselves.
func (r *Relay) tell(v *verdict) {
	for _, f := range v.failed {
		r.stats.failures.Add(1)
		r.cfg.OnError(fmt.Errorf("outbox: message %q to %s, attempt %d: %w", f.row.ID, f.row.Topic, f.row.attempts+1, f.err))
	}
	for _, f := range v.overtaken {
		r.stats.overtaken.Add(1)
		r.cfg.OnError(fmt.Errorf("outbox: message %q to %s: %w: %w", f.row.ID, f.row.Topic, ErrOvertaken, f.err))
	}
}
