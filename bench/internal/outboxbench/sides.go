package outboxbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/pgxlisten"
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
	all  func() // called when want messages have come
}

func (s *sink) Publish(ctx context.Context, messages []outbox.Message) []error {
	_ = backoff.Sleep(ctx, s.rtt) // no longer than the relay runs
	if s.got.Add(int64(len(messages))) >= s.want {
		s.all()
	}
	return nil
}

// fill writes what InsertTx would write, all at once.
func (t *tables) fill(ctx context.Context, timing *harness.Timing) {
	t.exec(ctx, `TRUNCATE `+t.table, fmt.Sprintf(
		`INSERT INTO %s (shard, topic, dedup_id, key, headers, payload)
		SELECT i %% %d %% 16, 'bookings', 'message-' || i, convert_to('key-' || i %% %d, 'UTF8'),
			'\x0100', convert_to(repeat('x', %d), 'UTF8')
		FROM generate_series(1, %d) AS i`, t.table, keys, keys, payload, len(timing.Keys)),
		`VACUUM ANALYZE `+t.table)
}

// relays are n of them, over a broker that is so far away.
func (t *tables) relays(n int, rtt time.Duration) harness.Run {
	return func(ctx context.Context, timing *harness.Timing) {
		running, cancel := context.WithCancel(ctx)
		defer cancel()
		s := &sink{rtt: rtt, want: int64(len(timing.Keys)), all: cancel}
		g, running := errgroup.WithContext(running)
		for range n {
			r := must.Get(outbox.NewRelay(outbox.RelayConfig{
				Outbox: t.box, DB: t.db, Publisher: s, Workers: 1,
				OnPark: func(context.Context, outbox.Parked) {},
			}))
			g.Go(func() error { return r.Run(running) })
		}
		must.Do(g.Wait())
		must.True(s.got.Load() == s.want, "%d messages were published of %d", s.got.Load(), s.want)
		var left int
		must.Do(t.db.QueryRowContext(ctx, `SELECT count(*) FROM `+t.table).Scan(&left))
		must.True(left == 0, "%d messages are left", left)
	}
}

// bareRead reads the table in pages, by its primary key, and does nothing.
func (t *tables) bareRead(ctx context.Context, timing *harness.Timing) {
	total := 0
	for shard := range 16 {
		last, n := int64(0), page
		for n == page {
			n = t.page(ctx, shard, &last)
			total += n
		}
	}
	must.True(total == len(timing.Keys), "%d rows of %d were read", total, len(timing.Keys))
}

func (t *tables) page(ctx context.Context, shard int, last *int64) (n int) {
	rows, err := t.db.QueryContext(ctx,
		`SELECT id, topic, dedup_id, key, headers, payload FROM `+t.table+
			` WHERE shard = $1 AND id > $2 ORDER BY id LIMIT $3`, shard, *last, page)
	must.Do(err)
	defer func() { _ = rows.Close() }()
	for ; rows.Next(); n++ {
		var m outbox.Message
		var headers []byte
		must.Do(rows.Scan(last, &m.Topic, &m.ID, &m.Key, &headers, &m.Payload))
	}
	must.Do(rows.Err())
	return n
}

func (t *tables) fillMore(ctx context.Context, timing *harness.Timing) {
	t.exec(ctx, `TRUNCATE `+t.more, fmt.Sprintf(`INSERT INTO %s (topic, payload)
		SELECT 'bookings', repeat('x', %d) FROM generate_series(1, %d)`, t.more, payload,
		len(timing.Keys)), `VACUUM ANALYZE `+t.more)
}

// recipe is what articles publish: SELECT ... SKIP LOCKED by itself, then publish and UPDATE row
// by row. Several of these publish the same rows; what counts here is only the rate of rows that
// are done with.
func (t *tables) recipe(n int, rtt time.Duration) harness.Run {
	return func(ctx context.Context, _ *harness.Timing) {
		work.Parallel(ctx, n, func(ctx context.Context, _ int) {
			for t.publishSome(ctx, rtt) > 0 {
			}
		})
	}
}

func (t *tables) publishSome(ctx context.Context, rtt time.Duration) int {
	rows, err := t.db.QueryContext(ctx, `SELECT id, topic, payload FROM `+t.more+
		` WHERE published_at IS NULL ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED`)
	must.Do(err)
	defer func() { _ = rows.Close() }()
	var ids []int64
	for rows.Next() {
		var id int64
		var topic, body string
		must.Do(rows.Scan(&id, &topic, &body))
		ids = append(ids, id)
	}
	must.Do(rows.Err())
	for _, id := range ids {
		must.Do(backoff.Sleep(ctx, rtt))
		must.Get(t.db.ExecContext(ctx,
			`UPDATE `+t.more+` SET published_at = now() WHERE id = $1`, id))
	}
	return len(ids)
}

// effects are transactions of eight callers, each with several effects, with or without messages.
type effects struct {
	*tables

	each    int // effects of a transaction
	message bool
	notify  string // how a commit with messages is signaled
}

// Ways of signaling.
const (
	byNotifier       = "a Notifier"
	inTheTransaction = "NOTIFY in the transaction"
)

func (e *effects) run(ctx context.Context, t *harness.Timing) {
	if e.notify == byNotifier {
		n := must.Get(outbox.NewNotifier(outbox.NotifierConfig{Outbox: e.box, DB: e.db}))
		running, cancel := context.WithCancel(ctx)
		var ended sync.WaitGroup
		ended.Go(func() { _ = n.Run(running) }) // it ends with running, and returns nothing else
		defer ended.Wait()
		defer cancel()
	}
	work.InBatches(8, e.each, func(ctx context.Context, _ int, _ []string) { e.one(ctx) })(ctx, t)
}

var body = make([]byte, payload)

func (e *effects) one(ctx context.Context) {
	tx := must.Get(e.db.BeginTx(ctx, nil))
	defer func() { _ = tx.Rollback() }()
	must.Get(tx.ExecContext(ctx,
		`INSERT INTO `+e.more+` (body) SELECT $1::bytea FROM generate_series(1, $2::int)`,
		body, e.each))
	if e.message {
		messages := make([]outbox.Message, e.each)
		for i := range messages {
			messages[i] = outbox.Message{Topic: "bookings", Key: []byte("key"), Payload: body}
		}
		must.Do(e.box.InsertTx(ctx, tx, messages...))
	}
	if e.notify == inTheTransaction {
		must.Get(tx.ExecContext(ctx, `SELECT pg_notify('bench_outbox', '')`))
	}
	must.Do(tx.Commit())
	e.box.Notify()
}

// Ways in which a relay learns that there is something.
const (
	byPolling    = "polling"
	bySignal     = "a signal"
	byNotifyAway = "a signal across processes"
)

// wakeUp commits single messages, with pauses, and times until the relay publishes each.
func (e *env) wakeUp(ctx context.Context, setup *harness.Setup, t *tables, way string,
	goal harness.Goal) {
	s := arrivals(make(chan time.Time, 1))
	g, running := errgroup.WithContext(ctx)
	running, cancel := context.WithCancel(running)
	defer cancel()
	box := t.box
	if way == byNotifyAway {
		box = e.notified(running, g, t)
	}
	r := must.Get(outbox.NewRelay(outbox.RelayConfig{Outbox: box, DB: t.db, Publisher: s,
		OnPark: func(context.Context, outbox.Parked) {}}))
	g.Go(func() error { return r.Run(running) })
	var took []float64
	for range e.wakeUps {
		one := t.wake(ctx, s, way != byPolling)
		took = append(took, float64(one)/float64(time.Millisecond))
	}
	cancel()
	name := "wake-up by " + way + ", median"
	setup.Figure(name, name, harness.Median(took), "ms").Wants(goal).Spread = harness.Spread(took)
	must.Do(g.Wait())
}

// notified is the same outbox as another process has it: only the database knows that Notify of t's
// was called.
func (e *env) notified(ctx context.Context, g *errgroup.Group, t *tables) *outbox.Outbox {
	away := must.Get(outbox.New(outbox.Config{Dialect: outbox.Postgres, Table: t.table}))
	n := must.Get(outbox.NewNotifier(outbox.NotifierConfig{Outbox: t.box, DB: t.db}))
	l := must.Get(pgxlisten.New(pgxlisten.Config{
		Outbox: away, Connect: func(ctx context.Context) (*pgx.Conn, error) {
			return pgx.Connect(ctx, e.url)
		},
	}))
	g.Go(func() error { return n.Run(ctx) })
	g.Go(func() error { return l.Run(ctx) })
	return away
}

type arrivals chan time.Time

func (a arrivals) Publish(context.Context, []outbox.Message) []error {
	a <- time.Now()
	return nil
}

// wake is one message after a pause in which nothing came.
func (t *tables) wake(ctx context.Context, s arrivals, signalled bool) time.Duration {
	must.Do(backoff.Sleep(ctx, time.Duration(20+rand.IntN(130))*time.Millisecond))
	tx := must.Get(t.db.BeginTx(ctx, nil))
	defer func() { _ = tx.Rollback() }()
	must.Do(t.box.InsertTx(ctx, tx,
		outbox.Message{Topic: "bookings", Key: []byte("key"), Payload: body}))
	must.Do(tx.Commit())
	committed := time.Now()
	if signalled {
		t.box.Notify()
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	select {
	case at := <-s:
		return max(0, at.Sub(committed))
	case <-ctx.Done():
		must.Do(fmt.Errorf("a message did not come: %w", context.Cause(ctx)))
		return 0
	}
}
