package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/sqlerr"
)

// settleAgain is the pause before settleApart tries again, as with SQLite, where one writer may
// have to wait for another.
var settleAgain = backoff.Policy{Base: 5 * time.Millisecond, Cap: 100 * time.Millisecond}

// settle deletes acknowledged messages, puts off failed ones and parks those that have failed too
// often, in the transaction that holds the lock, and commits.
//
// After a COMMIT whose answer is lost nothing needs to be asked: messages that it has deleted are
// gone, and the others are published again, under the same ids.
func (r *Relay) settle(ctx context.Context, l *locked, no int, v *publishResult) (parked []Parked,
	err error) {
	if l.tx != nil {
		return r.settleIn(ctx, l.tx.Tx, no, v)
	}
	return r.settleApart(ctx, no, v)
}

// settleApart does the same in a transaction of its own, which can be repeated. It is for a relay
// that holds a lease, and for a lock whose transaction must stay open.
func (r *Relay) settleApart(ctx context.Context, no int, v *publishResult) (parked []Parked,
	err error) {
	for try := 0; ; try++ {
		parked, err = r.settleOnce(ctx, no, v)
		if !sqlerr.Undone(err) || backoff.Sleep(ctx, settleAgain.Delay(try, 0, nil)) != nil {
			return parked, err
		}
	}
}

func (r *Relay) settleOnce(ctx context.Context, no int, v *publishResult) ([]Parked, error) {
	tx, err := r.apart(ctx)
	if err != nil {
		return nil, fmt.Errorf("outbox: %d messages are published, and will be again: begin: %w",
			len(v.acknowledged), err)
	}
	defer tx.end()
	return r.settleIn(ctx, tx.Tx, no, v)
}

// apart begins a transaction next to the one that holds a lock, or without one.
func (r *Relay) apart(ctx context.Context) (*transaction, error) {
	if r.box.dialect.kind != SQLite {
		return r.box.begin(ctx, r.cfg.DB)
	}
	tx, err := r.cfg.DB.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &transaction{Tx: tx}, nil
}

// settleIn returns the parked messages, even when COMMIT failed: OnPark should rather hear of a
// message twice than never.
func (r *Relay) settleIn(ctx context.Context, tx *sql.Tx, no int, v *publishResult) (
	parked []Parked, err error) {
	err = r.remember(ctx, tx, no, v.acknowledged)
	if err == nil {
		err = r.remove(ctx, tx, no, v.acknowledged)
	}
	if err != nil {
		return nil, fmt.Errorf("outbox: %d messages are published, and will be again: %w",
			len(v.acknowledged), err)
	}
	parked, left, err := r.setAside(ctx, tx, no, v)
	if err != nil {
		return nil, fmt.Errorf("outbox: %d messages are published, and will be again: %w",
			len(v.acknowledged), err)
	}
	if err := tx.Commit(); err != nil {
		return parked, fmt.Errorf(
			"outbox: %d messages are published, and perhaps will be again: commit: %w",
			len(v.acknowledged), err)
	}
	r.stats.published.Add(int64(len(v.acknowledged)))
	r.stats.parked.Add(int64(len(parked)))
	if len(v.acknowledged) > 0 {
		r.stats.batches.Add(1)
	}
	return parked, left
}

// remove never deletes by a range of ids: a row with a smaller id may have been committed since.
func (r *Relay) remove(ctx context.Context, tx *sql.Tx, no int, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	query, args := r.box.dialect.withIDs(r.statements.remove, ids, no)
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

const (
	savepoint = `SAVEPOINT onceward_outbox`
	back      = `ROLLBACK TO SAVEPOINT onceward_outbox`
)

// setAside writes the failures behind a savepoint. left is the error when that fails: the
// acknowledged messages can still be deleted, and are not published again.
func (r *Relay) setAside(ctx context.Context, tx *sql.Tx, no int, v *publishResult) (
	parked []Parked, left, err error) {
	if len(v.failed)+len(v.waiting) == 0 {
		return nil, nil, nil
	}
	if _, err := tx.ExecContext(ctx, savepoint); err != nil {
		return nil, nil, err
	}
	if parked, left = r.write(ctx, tx, no, v); left == nil {
		return parked, nil, nil
	}
	if _, err := tx.ExecContext(ctx, back); err != nil {
		return nil, nil, left // the whole transaction is gone
	}
	return nil, fmt.Errorf("outbox: %d messages have failed, and stay as they were: %w",
		len(v.failed)+len(v.waiting), left), nil
}

// write parks messages, and puts the others off.
func (r *Relay) write(ctx context.Context, tx *sql.Tx, no int, v *publishResult) (parked []Parked,
	err error) {
	var gone []int64
	later := map[int][]int64{} // by the number of failures before
	for _, f := range v.failed {
		if !errors.Is(f.err, ErrRejected) || !f.checked && f.row.attempts+1 < r.cfg.MaxAttempts {
			later[f.row.attempts] = append(later[f.row.attempts], f.row.id)
			continue
		}
		p := newParked(f)
		there, err := r.park(ctx, tx, no, &p)
		if err != nil {
			return nil, fmt.Errorf("park: %w", err)
		}
		if there {
			parked, gone = append(parked, p), append(gone, p.Row)
		}
	}
	if err := r.remove(ctx, tx, no, gone); err != nil {
		return nil, err
	}
	for attempts, ids := range later {
		if err := r.putOff(ctx, tx, no, ids, 1, r.cfg.retry().Delay(attempts, 0, nil)); err != nil {
			return nil, err
		}
	}
	waiting := map[time.Duration][]int64{}
	for _, f := range v.waiting {
		waiting[f.delay] = append(waiting[f.delay], f.row.id)
	}
	for delay, ids := range waiting {
		if err := r.putOff(ctx, tx, no, ids, 0, delay); err != nil {
			return nil, err
		}
	}
	return parked, nil
}

// park returns false when the message is gone: another relay has published it, after the lock of
// this one was lost, or somebody has deleted it.
func (r *Relay) park(ctx context.Context, tx *sql.Tx, no int, p *Parked) (there bool, err error) {
	result, err := tx.ExecContext(ctx, r.statements.park, p.Reason, no, p.Row)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

func (r *Relay) putOff(ctx context.Context, tx *sql.Tx, no int, ids []int64, count int,
	delay time.Duration) error {
	if len(ids) == 0 {
		return nil
	}
	query, args := r.box.dialect.withIDs(r.statements.fail, ids, count, delay.Microseconds(), no)
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("put off: %w", err)
	}
	return nil
}

// rehearse deletes a row and rolls that back: on a read replica, or without the right to delete,
// the same messages would be published again and again. A turn does it unless the shard's last turn
// has ended well.
//
// With MySQL it uses a separate transaction: there a row's lock outlives the savepoint, and
// settleApart would wait for it.
func (s *session) rehearse(l *locked, no int, id int64) error {
	ctx := l.ctx
	if l.tx == nil || s.box.dialect.kind == MySQL && cap(s.kept) > 0 {
		tx, err := s.apart(ctx)
		if err != nil {
			return err
		}
		defer tx.end()
		return s.remove(ctx, tx.Tx, no, []int64{id})
	}
	if _, err := l.tx.ExecContext(ctx, savepoint); err != nil {
		return err
	}
	if err := s.remove(ctx, l.tx.Tx, no, []int64{id}); err != nil {
		return err
	}
	_, err := l.tx.ExecContext(ctx, back)
	return err
}

// newParked makes the reason a text that every database takes.
func newParked(f failure) Parked {
	reason := strings.ReplaceAll(strings.ToValidUTF8(f.err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	m := f.row.Message
	m.Headers = m.Headers[:len(m.Headers)-1] // the last one is the id's
	return Parked{Row: f.row.id, Message: m, Attempts: f.row.attempts + 1, Reason: reason,
		At: time.Now().UTC()}
}
