// Package outboxbench measures how fast messages get from a PostgreSQL table to a publisher: with
// the relay of package outbox, with the recipe of most articles, and by only reading.
package outboxbench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/pgxlisten"
	"github.com/onceward/onceward/sqladapter"
)

// Suite measures the relay of the outbox.
var Suite = harness.Suite{
	Area: "outbox", About: "the outbox's relay on PostgreSQL",
	Full:  harness.Scale{Rounds: 7, Keys: 150_000, Budget: 700 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Keys: 150_000, Budget: 300 * time.Millisecond},
	Open: func(ctx context.Context, o harness.Options, b *harness.Bench) {
		postgres := server.OpenDatabase(ctx, b, sqladapter.Postgres, o.Postgres)
		if postgres == nil {
			return
		}
		db := postgres.Pool(64)
		db.SetMaxOpenConns(0)
		e := &env{db: db, url: postgres.URL, wakeUps: 101, least: 1000}
		if o.Quick {
			e.wakeUps = 21
		}
		b.Defer(db.Close)
		b.Groups = e.groups()
		b.Modules = []string{"pgx"}
	},
}

type env struct {
	db      *sql.DB
	url     string
	wakeUps int // number of single messages whose wake-up is timed
	least   int // least number of messages in a relay's timing
}

const (
	four     = "onceward, 4 relays"
	one      = "onceward, 1 relay"
	bareRead = "bare read of the table"
	// With more than one relay, the recipe publishes rows more than once. Four relays are here for
	// comparison.
	recipeOne  = "row-at-a-time recipe, 1 relay"
	recipeFour = "row-at-a-time recipe, 4 relays, which double"

	byNotifier       = "a Notifier"
	inTheTransaction = "NOTIFY in the transaction"

	// the ways in which a relay learns about messages
	byPolling    = "polling"
	bySignal     = "a signal"
	byNotifyAway = "a signal across processes"
)

func (e *env) groups() (all harness.Groups) {
	for x, goal := range []harness.Goal{">= 50x (stretch 79x)", ">= 150x (stretch 257x)"} {
		all.Add("relay", x, fmt.Sprintf("relay, broker at %d ms", x),
			func(ctx context.Context, s *harness.Setup) {
				s.MinKeys = e.least
				e.newTables(ctx, s).relay(ctx, s, time.Duration(x)*time.Millisecond, goal)
			})
	}
	for i, way := range []string{byPolling, bySignal, byNotifyAway} {
		goal := []harness.Goal{"<= 15 ms", "<= 5 ms", "<= 5 ms"}[i]
		all.Add("wake-up", 0, "wake-up by "+way, func(ctx context.Context, s *harness.Setup) {
			e.wakeUp(ctx, s, e.newTables(ctx, s), way, goal)
		})
	}
	all.Add("insert", 1, "insert, one message a transaction", e.insertOf(1))
	all.Add("insert", 100, "insert, 100 messages a transaction", e.insertOf(100))
	return all
}

type tables struct {
	db    *sql.DB
	box   *outbox.Outbox
	table string
	more  string // another table, for comparison
}

func (e *env) newTables(ctx context.Context, s *harness.Setup) *tables {
	t := &tables{db: e.db, table: "bench_outbox_" + harness.Fresh()[:8]}
	t.more = t.table + "_more"
	t.box = must.Get(outbox.New(outbox.Config{Dialect: outbox.Postgres, Table: t.table}))
	s.DeferCtx(func(ctx context.Context) error {
		_, err := t.db.ExecContext(ctx, `DROP TABLE IF EXISTS `+t.more)
		return errors.Join(err, t.box.MigrateDown(ctx, t.db, 0))
	})
	must.Do(t.box.Migrate(ctx, t.db))
	return t
}

func (t *tables) exec(ctx context.Context, query string, args ...any) {
	must.Get(t.db.ExecContext(ctx, query, args...))
}

func (t *tables) relay(ctx context.Context, s *harness.Setup, rtt time.Duration,
	goal harness.Goal) {
	t.exec(ctx, `CREATE TABLE `+t.more+` (id bigserial PRIMARY KEY, topic text NOT NULL,
			payload text NOT NULL, published_at timestamptz);
		CREATE INDEX ON `+t.more+` (id) WHERE published_at IS NULL`)
	s.Prepared(four, t.fill, t.relays(4, rtt))
	s.Prepared(one, t.fill, t.relays(1, rtt))
	s.Prepared(recipeOne, t.fillMore, t.recipe(1, rtt))
	s.Prepared(recipeFour, t.fillMore, t.recipe(4, rtt))
	s.Prepared(bareRead, t.fill, t.bareRead)
	name := fmt.Sprintf("outbox relay, four relays, order per key, broker at %d ms",
		rtt.Milliseconds())
	s.Metric = harness.Relayed
	s.Compare(four, recipeOne).Called(name).Wants(goal)
	s.Compare(four, bareRead).Called(name).Wants(harness.When(rtt == 0, ">= 0.3x"))
	s.Compare(four, recipeFour).Called(name)
	s.Compare(one, recipeOne).Called(name + ", but one relay")
	for _, side := range []string{recipeOne, recipeFour, bareRead} {
		s.Compare(side, "").Called(name + ", for comparison")
	}
}

// insertOf measures transactions that insert messages; each is the number per transaction.
func (e *env) insertOf(each int) func(context.Context, *harness.Setup) {
	return func(ctx context.Context, s *harness.Setup) {
		t := e.newTables(ctx, s)
		s.Multiple = each
		empty := func(ctx context.Context, _ *harness.Timing) {
			t.exec(ctx, `TRUNCATE `+t.table+`, `+t.more)
		}
		side := func(name string, message bool, notify string) {
			s.Prepared(name, empty, t.effects(each, message, notify))
		}
		const both, alone = "effect and message", "effect alone"
		const apart, inside = both + ", and " + byNotifier, both + ", and " + inTheTransaction
		side(both, true, "")
		side(alone, false, "")
		side(apart, true, byNotifier)
		side(inside, true, inTheTransaction)
		s.Metric = harness.Relayed
		size := fmt.Sprintf("%d in a transaction, 8 callers", each)
		s.Compare(apart, both).Called("Notifier with InsertTx, " + size).Wants(">= 0.9x")
		s.Compare(inside, both).
			Called(fmt.Sprintf("NOTIFY in the transaction, %d in it, 8 callers", each))
		s.Compare(both, alone).Called("InsertTx with the effect, " + size)
		s.Compare(alone, "").Called("the same without the message")
		t.exec(ctx, `CREATE TABLE `+t.more+` (id bigserial PRIMARY KEY, body bytea NOT NULL)`)
	}
}

const (
	payload = 200  // bytes of a message
	keys    = 1600 // number of different keys
	page    = 1024 // rows that a bare read reads at a time
)

// sink is a publisher that acknowledges after the round trip to a broker.
type sink struct {
	rtt  time.Duration
	want int64
	got  atomic.Int64
	all  func() // called when want messages have arrived
}

func (s *sink) Publish(ctx context.Context, messages []outbox.Message) []error {
	_ = backoff.Sleep(ctx, s.rtt) // it ends when the relay stops
	if s.got.Add(int64(len(messages))) >= s.want {
		s.all()
	}
	return nil
}

// fill writes the rows that InsertTx would write, all at once.
func (t *tables) fill(ctx context.Context, timing *harness.Timing) {
	t.exec(ctx, `TRUNCATE `+t.table)
	t.exec(ctx, `INSERT INTO `+t.table+` (shard, topic, dedup_id, key, headers, payload)
		SELECT i % $1 % 16, 'bookings', 'message-' || i, convert_to('key-' || i % $1, 'UTF8'),
			'\x0100', convert_to(repeat('x', $2), 'UTF8')
		FROM generate_series(1, $3) AS i`, keys, payload, len(timing.Keys))
	t.exec(ctx, `VACUUM ANALYZE `+t.table)
}

// relays runs n relays with a broker that is a round trip of rtt away.
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

// bareRead reads the table in pages, by its primary key, and does nothing with the rows.
func (t *tables) bareRead(ctx context.Context, timing *harness.Timing) {
	total, query := 0, `SELECT id, topic, dedup_id, key, headers, payload FROM `+t.table+
		` WHERE shard = $1 AND id > $2 ORDER BY id LIMIT $3`
	for shard := range 16 {
		last, n := int64(0), page
		for n == page {
			n = server.Scan(ctx, t.db, func(rows *sql.Rows) error {
				var m outbox.Message
				var headers []byte
				return rows.Scan(&last, &m.Topic, &m.ID, &m.Key, &headers, &m.Payload)
			}, query, shard, last, page)
			total += n
		}
	}
	must.True(total == len(timing.Keys), "%d rows of %d were read", total, len(timing.Keys))
}

func (t *tables) fillMore(ctx context.Context, timing *harness.Timing) {
	t.exec(ctx, `TRUNCATE `+t.more)
	t.exec(ctx, `INSERT INTO `+t.more+` (topic, payload)
		SELECT 'bookings', repeat('x', $1) FROM generate_series(1, $2)`, payload, len(timing.Keys))
	t.exec(ctx, `VACUUM ANALYZE `+t.more)
}

// recipe is the code of many articles: SELECT ... SKIP LOCKED on its own, then publish and UPDATE
// row by row. Several such relays publish the same rows, so only the rate of completed rows counts.
func (t *tables) recipe(n int, rtt time.Duration) harness.Run {
	return func(ctx context.Context, _ *harness.Timing) {
		work.Parallel(ctx, n, func(ctx context.Context, _ int) {
			for t.publishSome(ctx, rtt) > 0 {
			}
		})
	}
}

func (t *tables) publishSome(ctx context.Context, rtt time.Duration) int {
	var ids []int64
	server.Scan(ctx, t.db, func(rows *sql.Rows) error {
		var id int64
		var topic, body string
		err := rows.Scan(&id, &topic, &body)
		ids = append(ids, id)
		return err
	}, `SELECT id, topic, payload FROM `+t.more+
		` WHERE published_at IS NULL ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED`)
	for _, id := range ids {
		must.Do(backoff.Sleep(ctx, rtt))
		t.exec(ctx, `UPDATE `+t.more+` SET published_at = now() WHERE id = $1`, id)
	}
	return len(ids)
}

// effects lets eight callers run transactions, with or without messages. The parameter each is the
// number of effects in a transaction, and notify is how a commit with messages is signaled.
func (t *tables) effects(each int, message bool, notify string) harness.Run {
	one := func(ctx context.Context, _ int, _ []string) { t.effect(ctx, each, message, notify) }
	return func(ctx context.Context, timing *harness.Timing) {
		if notify == byNotifier {
			n := must.Get(outbox.NewNotifier(outbox.NotifierConfig{Outbox: t.box, DB: t.db}))
			running, cancel := context.WithCancel(ctx)
			var ended sync.WaitGroup
			ended.Go(func() { _ = n.Run(running) }) // it ends when running does
			defer ended.Wait()
			defer cancel()
		}
		work.InBatches(8, each, one)(ctx, timing)
	}
}

var body = make([]byte, payload)

func (t *tables) effect(ctx context.Context, each int, message bool, notify string) {
	tx := must.Get(t.db.BeginTx(ctx, nil))
	defer func() { _ = tx.Rollback() }()
	must.Get(tx.ExecContext(ctx,
		`INSERT INTO `+t.more+` (body) SELECT $1::bytea FROM generate_series(1, $2::int)`,
		body, each))
	if message {
		one := outbox.Message{Topic: "bookings", Key: []byte("key"), Payload: body}
		must.Do(t.box.InsertTx(ctx, tx, slices.Repeat([]outbox.Message{one}, each)...))
	}
	if notify == inTheTransaction {
		must.Get(tx.ExecContext(ctx, `SELECT pg_notify('bench_outbox', '')`))
	}
	must.Do(tx.Commit())
	t.box.Notify()
}

// wakeUp commits single messages, with pauses, and measures how long the relay takes to publish
// each.
func (e *env) wakeUp(ctx context.Context, setup *harness.Setup, t *tables, way string,
	goal harness.Goal) {
	s := arrivals(make(chan time.Time, 1))
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	g, running := errgroup.WithContext(running)
	box := t.box
	if way == byNotifyAway {
		box = e.notified(running, g, t)
	}
	r := must.Get(outbox.NewRelay(outbox.RelayConfig{Outbox: box, DB: t.db, Publisher: s,
		OnPark: func(context.Context, outbox.Parked) {}}))
	g.Go(func() error { return r.Run(running) })
	var took []float64
	for range e.wakeUps {
		took = append(took, 1e3*t.wake(ctx, s, way != byPolling).Seconds())
	}
	cancel()
	name := "wake-up by " + way + ", median"
	setup.Figure(name, name, harness.Median(took), "ms").Wants(goal).Spread = harness.Spread(took)
	must.Do(g.Wait())
}

// notified returns the same outbox as another process would see it: only the database tells it that
// t.box.Notify was called.
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

// wake pauses, commits one message, and returns the time until it is published.
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
