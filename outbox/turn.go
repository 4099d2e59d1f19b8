package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// turn publishes one batch of a shard, if nobody else has the shard.
func (r *Relay) turn(ctx context.Context, no int, s *shard) report {
	rep := report{shard: no}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.PublishTimeout+grace)
	defer cancel()
	delay := r.cfg.retry().Delay(s.failures, 0, nil) // if it fails
	hung, err := r.serve(ctx, no, s, &rep, delay)
	switch {
	case err != nil:
		s.until = time.Now().Add(delay)
		s.failures++
		r.stats.failures.Add(1)
		r.cfg.OnError(err)
	case rep.found:
		s.failures = 0
	}
	if hung != nil {
		// The transaction has ended and others may have the shard. But another call by this
		// worker could hang as well, and then there would be ever more of them.
		<-hung
	}
	return rep
}

// serve is the transaction of a turn, or what stands for it. An error says that the shard is to
// wait.
func (r *Relay) serve(ctx context.Context, no int, s *shard, rep *report, delay time.Duration) (hung <-chan struct{}, err error) {
	locked, err := r.lock(ctx, no)
	if err != nil || locked == nil {
		return nil, err
	}
	defer locked.end()
	rows, full, err := r.read(ctx, locked, no, s)
	if err != nil {
		return nil, fmt.Errorf("outbox: read: %w", err)
	}
	b := r.pick(rows)
	if len(b.rows) == 0 && len(b.refused) == 0 {
		return nil, nil // all of them wait
	}
	results, hung := r.publish(ctx, b.messages)
	v := b.judge(results)
	r.tell(v)
	if err := r.settle(ctx, locked, no, v, delay); err != nil {
		return hung, err
	}
	rep.found = len(v.acknowledged) > 0
	rep.more = full && rep.found
	return hung, v.whole
}

// locked is a shard that no other relay publishes from.
type locked struct {
	tx     *sql.Tx // whose end ends the lock; nil where a lease is held
	reader queryer
}

// queryer is a pool or a transaction.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// fresh is where a statement sees what is committed now. On a connection of MySQL with autocommit
// off, as sqladapter wants it, one outside of a transaction would open one that never ends, and
// see its snapshot for ever.
func (o *Outbox) fresh(ctx context.Context, db *sql.DB) (from queryer, end func(), err error) {
	if o.dialect.kind != MySQL {
		return db, func() {}, nil
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, nil, err
	}
	return tx, func() { _ = tx.Rollback() }, nil
}

// end releases what is not committed.
func (l *locked) end() {
	if l.tx != nil {
		_ = l.tx.Rollback() // after Commit it does nothing
	}
}

// lock takes the shard, or returns nil when another relay has it.
func (r *Relay) lock(ctx context.Context, no int) (*locked, error) {
	if r.box.dialect.kind == SQLite {
		return r.lease(ctx, no)
	}
	// READ COMMITTED: the statement that reads must see what was deleted until the lock was
	// had, not what there was when the transaction began to wait for it.
	tx, err := r.cfg.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, fmt.Errorf("outbox: begin: %w", err)
	}
	var ours int
	err = tx.QueryRowContext(ctx, r.box.dialect.lock, no).Scan(&ours)
	if err == nil && ours == 1 {
		return &locked{tx: tx, reader: tx}, nil
	}
	_ = tx.Rollback()
	if err == nil || err == sql.ErrNoRows { //nolint:errorlint // Scan returns it as it is
		return nil, nil
	}
	return nil, fmt.Errorf("outbox: lock: %w", err)
}

// lease is the lock of an engine with one writer, whose transaction must not last as long as a
// broker takes.
func (r *Relay) lease(ctx context.Context, no int) (*locked, error) {
	lasts := r.cfg.PublishTimeout + grace
	result, err := r.cfg.DB.ExecContext(ctx, r.box.dialect.lock, r.name, lasts.Milliseconds(), no, r.name)
	if err != nil {
		return nil, fmt.Errorf("outbox: lease: %w", err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return nil, err
	}
	return &locked{reader: r.cfg.DB}, nil
}

// publish calls the publisher, which may never return: hung is then closed when it does.
func (r *Relay) publish(ctx context.Context, messages []Message) (results []error, hung <-chan struct{}) {
	if len(messages) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.PublishTimeout)
	ended := make(chan struct{})
	var answer []error
	go func() {
		defer close(ended)
		defer cancel()
		answer = r.cfg.Publisher.Publish(ctx, messages)
	}()
	select {
	case <-ended:
		return answered(answer, len(messages)), nil
	case <-ctx.Done():
	}
	if waitFor(ended, linger) {
		return answered(answer, len(messages)), nil
	}
	return unacknowledged(len(messages), "Publish has not returned"), ended
}

// answered is one result for each message, whatever the publisher has made of it.
func answered(answer []error, n int) []error {
	switch {
	case answer == nil:
		return make([]error, n)
	case len(answer) != n:
		return unacknowledged(n, fmt.Sprintf("Publish returned %d results for %d messages", len(answer), n))
	}
	return answer
}

func unacknowledged(n int, why string) []error {
	results := make([]error, n)
	for i := range results {
		results[i] = fmt.Errorf("%w: %s", ErrUnacknowledged, why)
	}
	return results
}
