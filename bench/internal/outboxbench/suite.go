// Package outboxbench measures how fast messages get from a table of PostgreSQL to a publisher: by
// the relay of package outbox, by the recipe that most articles have, and by nothing but reading.
package outboxbench

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/sqladapter"
)

// Suite is the outbox's relay.
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
	wakeUps int // messages one by one that are looked at
	least   int // messages of a relay's timing
}

// Names of the sides.
const (
	four     = "onceward, 4 relays"
	one      = "onceward, 1 relay"
	bareRead = "bare read of the table"
	// With more relays than one the recipe publishes rows again; four are here for comparison.
	recipeOne  = "row-at-a-time recipe, 1 relay"
	recipeFour = "row-at-a-time recipe, 4 relays, which double"
)

func (e *env) groups() (all harness.Groups) {
	add := func(workload string, x int, title string,
		open func(ctx context.Context, s *harness.Setup, t *tables)) {
		all.Add(workload, x, title, func(ctx context.Context, s *harness.Setup) {
			open(ctx, s, e.newTables(ctx, s))
		})
	}
	for x, goal := range []harness.Goal{">= 50x (stretch 79x)", ">= 150x (stretch 257x)"} {
		add("relay", x, fmt.Sprintf("relay, broker at %d ms", x),
			func(ctx context.Context, s *harness.Setup, t *tables) {
				s.MinKeys = e.least
				t.relay(ctx, s, time.Duration(x)*time.Millisecond, goal)
			})
	}
	for i, way := range []string{byPolling, bySignal, byNotifyAway} {
		goal := []harness.Goal{"<= 15 ms", "<= 5 ms", "<= 5 ms"}[i]
		add("wake-up", 0, "wake-up by "+way,
			func(ctx context.Context, s *harness.Setup, t *tables) {
				e.wakeUp(ctx, s, t, way, goal)
			})
	}
	add("insert", 1, "insert, one message a transaction", insertOf(1))
	add("insert", 100, "insert, 100 messages a transaction", insertOf(100))
	return all
}

type tables struct {
	db    *sql.DB
	box   *outbox.Outbox
	table string
	more  string // a table next to it
}

func (e *env) newTables(ctx context.Context, s *harness.Setup) *tables {
	t := &tables{db: e.db, table: "bench_outbox_" + harness.Fresh()[:8]}
	t.more = t.table + "_more"
	t.box = must.Get(outbox.New(outbox.Config{Dialect: outbox.Postgres, Table: t.table}))
	s.Defer(func() (err error) {
		defer must.Catch(&err)
		ctx := context.WithoutCancel(ctx) // also after an interrupt
		t.exec(ctx, `DROP TABLE IF EXISTS `+t.more)
		return t.box.MigrateDown(ctx, t.db, 0)
	})
	must.Do(t.box.Migrate(ctx, t.db))
	return t
}

func (t *tables) exec(ctx context.Context, queries ...string) {
	for _, q := range queries {
		must.Get(t.db.ExecContext(ctx, q))
	}
}

func (t *tables) relay(ctx context.Context, s *harness.Setup, rtt time.Duration,
	goal harness.Goal) {
	t.exec(ctx, `CREATE TABLE `+t.more+` (id bigserial PRIMARY KEY, topic text NOT NULL, `+
		`payload text NOT NULL, published_at timestamptz)`,
		`CREATE INDEX ON `+t.more+` (id) WHERE published_at IS NULL`)
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

// insertOf is transactions with so many messages each.
func insertOf(each int) func(context.Context, *harness.Setup, *tables) {
	return func(ctx context.Context, s *harness.Setup, t *tables) {
		s.Multiple = each
		empty := func(ctx context.Context, _ *harness.Timing) {
			t.exec(ctx, `TRUNCATE `+t.table, `TRUNCATE `+t.more)
		}
		side := func(name string, message bool, notify string) {
			s.Prepared(name, empty, (&effects{t, each, message, notify}).run)
		}
		const both, alone = "effect and message", "effect alone"
		const apart, inside = both + ", and " + byNotifier, both + ", and " + inTheTransaction
		side(both, true, "")
		side(alone, false, "")
		side(apart, true, byNotifier)
		side(inside, true, inTheTransaction)
		s.Metric = harness.Relayed
		s.Compare(apart, both).Wants(">= 0.9x").Called(
			fmt.Sprintf("Notifier with InsertTx, %d in a transaction, 8 callers", each))
		s.Compare(inside, both).Called(
			fmt.Sprintf("NOTIFY in the transaction, %d in it, 8 callers", each))
		s.Compare(both, alone).Called(
			fmt.Sprintf("InsertTx with the effect, %d in a transaction, 8 callers", each))
		s.Compare(alone, "").Called("the same without the message")
		t.exec(ctx, `CREATE TABLE `+t.more+` (id bigserial PRIMARY KEY, body bytea NOT NULL)`)
	}
}
