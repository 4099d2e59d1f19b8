package outboxbench

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/outbox"
)

const (
	payload = 200  // bytes of a message
	keys    = 1600 // of the messages
	page    = 1024 // rows that a bare read takes at once
)

// sink is a publisher that acknowledges after the round trip of a broker.
type sink struct {
	rtt  time.Duration
	want int64
	got  atomic.Int64
	all  chan struct{} // closed when want messages have come
}

func newSink(rtt time.Duration, want int) *sink {
	return &sink{rtt: rtt, want: int64(want), all: make(chan struct{})}
}

func (s *sink) Publish(ctx context.Context, messages []outbox.Message) []error {
	s.wait(ctx)
	n := int64(len(messages))
	if got := s.got.Add(n); got >= s.want && got-n < s.want {
		close(s.all)
	}
	return nil
}

func (s *sink) wait(ctx context.Context) {
	if s.rtt == 0 {
		return
	}
	timer := time.NewTimer(s.rtt)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// ours is the relay of package outbox.
type ours struct {
	*tables

	relays int
	rtt    time.Duration
}

// fill is what InsertTx would write, all at once.
func (o *ours) fill(ctx context.Context, t *harness.Timing) error {
	return steps(ctx, o.db, `TRUNCATE `+o.table, fmt.Sprintf(`INSERT INTO %s (shard, topic, dedup_id, key, headers, payload)
		SELECT i %% %d %% 16, 'bookings', 'message-' || i, convert_to('key-' || i %% %d, 'UTF8'),
			'\x0100', convert_to(repeat('x', %d), 'UTF8')
		FROM generate_series(1, %d) AS i`, o.table, keys, keys, payload, len(t.Keys)), `VACUUM ANALYZE `+o.table)
}

func (o *ours) run(ctx context.Context, t *harness.Timing) error {
	s := newSink(o.rtt, len(t.Keys))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, running := errgroup.WithContext(ctx)
	for range o.relays {
		r, err := outbox.NewRelay(outbox.RelayConfig{
			Outbox: o.box, DB: o.db, Publisher: s, Workers: 1,
			OnPark: func(context.Context, outbox.Parked) {},
		})
		if err != nil {
			return err
		}
		g.Go(func() error { return r.Run(running) })
	}
	select {
	case <-s.all:
	case <-running.Done():
	}
	cancel()
	if err := g.Wait(); err != nil {
		return err
	}
	if got := s.got.Load(); got != int64(len(t.Keys)) {
		return fmt.Errorf("%d messages were published of %d", got, len(t.Keys))
	}
	var left int
	if err := o.db.QueryRowContext(context.WithoutCancel(ctx),
		`SELECT count(*) FROM `+o.table).Scan(&left); err != nil || left != 0 {
		return fmt.Errorf("%d messages are left: %w", left, err)
	}
	return nil
}

// bare reads the table in pages, by its primary key, and does nothing.
func (o *ours) bare(ctx context.Context, t *harness.Timing) error {
	total := 0
	for shard := range 16 {
		for last := int64(0); ; {
			n, err := o.page(ctx, shard, &last)
			if err != nil {
				return err
			}
			if total += n; n < page {
				break
			}
		}
	}
	if total != len(t.Keys) {
		return fmt.Errorf("%d rows of %d were read", total, len(t.Keys))
	}
	return nil
}

func (o *ours) page(ctx context.Context, shard int, last *int64) (n int, err error) {
	rows, err := o.db.QueryContext(ctx,
		`SELECT id, topic, dedup_id, key, headers, payload FROM `+o.table+
			` WHERE shard = $1 AND id > $2 ORDER BY id LIMIT $3`, shard, *last, page)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	for ; rows.Next(); n++ {
		var m outbox.Message
		var headers []byte
		if err := rows.Scan(last, &m.Topic, &m.ID, &m.Key, &headers, &m.Payload); err != nil {
			return n, err
		}
	}
	return n, rows.Err()
}

// recipe is what articles publish: SELECT ... SKIP LOCKED by itself, then publish and UPDATE row
// by row. Several of these publish the same rows; what counts here is only the rate of rows that
// are done with.
type recipe struct {
	*tables

	relays int
	rtt    time.Duration
}

func (r *recipe) fill(ctx context.Context, t *harness.Timing) error {
	return steps(ctx, r.db, `TRUNCATE `+r.more, fmt.Sprintf(`INSERT INTO %s (topic, payload)
		SELECT 'bookings', repeat('x', %d) FROM generate_series(1, %d)`, r.more, payload, len(t.Keys)), `VACUUM ANALYZE `+r.more)
}

func (r *recipe) run(ctx context.Context, t *harness.Timing) error {
	s := newSink(r.rtt, len(t.Keys))
	g, ctx := errgroup.WithContext(ctx)
	for range r.relays {
		g.Go(func() error {
			for {
				done, err := r.batch(ctx, s)
				if err != nil || done == 0 {
					return err
				}
			}
		})
	}
	return g.Wait()
}

func (r *recipe) batch(ctx context.Context, s *sink) (int, error) {
	rows, err := r.db.QueryContext(ctx, `SELECT id, topic, payload FROM `+r.more+
		` WHERE published_at IS NULL ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED`)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	var ids []int64
	for rows.Next() {
		var id int64
		var topic, body string
		if err := rows.Scan(&id, &topic, &body); err != nil {
			return 0, err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	for _, id := range ids {
		s.wait(ctx)
		if _, err := r.db.ExecContext(ctx,
			`UPDATE `+r.more+` SET published_at = now() WHERE id = $1`, id); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

func steps(ctx context.Context, db *sql.DB, queries ...string) error {
	for _, q := range queries {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}

// effects are business transactions of eight callers, with a message of the outbox or without,
// several of both in one transaction.
type effects struct {
	*tables

	each    int // effects of a transaction
	message bool
	notify  how
}

// how a commit with messages is signaled: to a Notifier, or in a statement of the transaction
// itself.
type how int

const (
	byNobody how = iota
	byNotifier
	inTheTransaction
)

func (e *effects) run(ctx context.Context, t *harness.Timing) error {
	const callers = 8
	var next atomic.Int64
	if e.notify == byNotifier {
		stop, err := e.notifier(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	g, ctx := errgroup.WithContext(ctx)
	for range callers {
		g.Go(func() error {
			for next.Add(int64(e.each)) <= int64(len(t.Keys)) {
				if err := e.one(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

var body = sync.OnceValue(func() []byte { return make([]byte, payload) })

func (e *effects) one(ctx context.Context) error {
	tx, err := e.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx,
		`INSERT INTO `+e.more+` (body) SELECT $1::bytea FROM generate_series(1, $2::int)`,
		body(), e.each); err != nil {
		return err
	}
	if e.message {
		messages := make([]outbox.Message, e.each)
		for i := range messages {
			messages[i] = outbox.Message{Topic: "bookings", Key: []byte("key"), Payload: body()}
		}
		if err := e.box.InsertTx(ctx, tx, messages...); err != nil {
			return err
		}
	}
	if e.notify == inTheTransaction {
		if _, err := tx.ExecContext(ctx, `SELECT pg_notify('bench_outbox', '')`); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	e.box.Notify()
	return nil
}

// notifier runs one until stop is called.
func (e *effects) notifier(ctx context.Context) (stop func(), err error) {
	n, err := outbox.NewNotifier(outbox.NotifierConfig{Outbox: e.box, DB: e.db})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = n.Run(ctx) }() // it ends with ctx, and returns nothing else
	return func() { cancel(); <-ended }, nil
}
