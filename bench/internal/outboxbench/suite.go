// Package outboxbench measures how fast messages get from a table of PostgreSQL to a publisher: by
// the relay of package outbox, by the recipe that most articles have, and by nothing but reading.
package outboxbench

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/sqladapter"
)

// Suite is the outbox's relay.
var Suite = harness.Suite{
	Area: "outbox", About: "the outbox's relay on PostgreSQL",
	Full:  harness.Scale{Rounds: 7, Keys: 150_000, Budget: 700 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Keys: 150_000, Budget: 300 * time.Millisecond},
	Open: func(ctx context.Context, o harness.Options) (*harness.Bench, error) {
		postgres, err := server.OpenDatabase(ctx, sqladapter.Postgres, o.Postgres, o.Port)
		if err != nil {
			return nil, err
		}
		b := &harness.Bench{Servers: []harness.Server{postgres},
			Modules: map[string]string{"github.com/jackc/pgx/v5": "pgx"}}
		db, err := postgres.Pool(64)
		if err != nil {
			return b, err
		}
		db.SetMaxOpenConns(0)
		e := &env{db: db, url: postgres.URL, wakeUps: 101, least: 1000}
		if o.Quick {
			e.wakeUps = 21
		}
		b.Groups, b.Close = e.groups(), db.Close
		return b, nil
	},
}

// env is where the workloads run.
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

// groups are all workloads.
func (e *env) groups() []harness.Group {
	var all []harness.Group
	add := func(workload string, x int, title string,
		open func(ctx context.Context, s *harness.Setup, t *tables) error) {
		all = append(all, harness.Group{Workload: workload, X: float64(x), Title: title,
			Open: func(ctx context.Context, s *harness.Setup) error {
				t, err := e.newTables(ctx, s)
				if err != nil {
					return err
				}
				return open(ctx, s, t)
			}})
	}
	for x, goal := range []harness.Goal{harness.AtLeast(50, 79), harness.AtLeast(150, 257)} {
		add("relay", x, fmt.Sprintf("relay, broker at %d ms", x),
			func(ctx context.Context, s *harness.Setup, t *tables) error {
				s.MinKeys = e.least
				return t.relay(ctx, s, time.Duration(x)*time.Millisecond, goal)
			})
	}
	for _, way := range []string{byPolling, bySignal, byNotifyAway} {
		goal := harness.ValueAtMost(5, 0, "ms")
		if way == byPolling {
			goal = harness.ValueAtMost(15, 0, "ms")
		}
		add("wake-up", 0, "wake-up by "+way,
			func(ctx context.Context, s *harness.Setup, t *tables) error {
				return e.wakeUp(ctx, s, t, way, goal)
			})
	}
	add("insert", 1, "insert, one message a transaction", insertOf(1))
	add("insert", 100, "insert, 100 messages a transaction", insertOf(100))
	return all
}

// tables of one group.
type tables struct {
	db    *sql.DB
	box   *outbox.Outbox
	table string
	more  string // a table next to it
}

func (e *env) newTables(ctx context.Context, s *harness.Setup) (t *tables, err error) {
	t = &tables{db: e.db, table: "bench_outbox_" + harness.Fresh()[:8]}
	t.more = t.table + "_beside"
	if t.box, err = outbox.New(outbox.Config{Dialect: outbox.Postgres,
		Table: t.table}); err != nil {
		return nil, err
	}
	s.Defer(func() error {
		ctx := context.WithoutCancel(ctx) // also after an interrupt
		if err := steps(ctx, t.db, `DROP TABLE IF EXISTS `+t.more); err != nil {
			return err
		}
		return t.box.MigrateDown(ctx, t.db, 0)
	})
	return t, t.box.Migrate(ctx, t.db)
}

func (t *tables) relay(ctx context.Context, s *harness.Setup, rtt time.Duration,
	goal harness.Goal) error {
	err := steps(ctx, t.db, `CREATE TABLE `+t.more+
		` (id bigserial PRIMARY KEY, topic text NOT NULL, payload text NOT NULL, published_at timestamptz)`,
		`CREATE INDEX ON `+t.more+` (id) WHERE published_at IS NULL`)
	if err != nil {
		return err
	}
	all, lone := &ours{t, 4, rtt}, &ours{t, 1, rtt}
	r1, r4 := &recipe{t, 1, rtt}, &recipe{t, 4, rtt}
	s.Sides = []harness.Side{
		{Name: four, Prepare: all.fill, Run: all.run},
		{Name: one, Prepare: lone.fill, Run: lone.run},
		{Name: recipeOne, Prepare: r1.fill, Run: r1.run},
		{Name: recipeFour, Prepare: r4.fill, Run: r4.run},
		{Name: bareRead, Prepare: all.fill, Run: all.bare},
	}
	name := fmt.Sprintf("outbox relay, four relays, order per key, broker at %d ms",
		rtt.Milliseconds())
	add := func(more, side, against string, goal harness.Goal) {
		s.Pair(harness.Pair{Name: name + more, Side: side, Against: against,
			Metric: harness.Relayed, Goal: goal})
	}
	add("", four, recipeOne, goal)
	add("", four, bareRead, harness.When(rtt == 0, harness.AtLeast(0.3, 0)))
	add("", four, recipeFour, harness.Goal{})
	add(", but one relay", one, recipeOne, harness.Goal{})
	for _, side := range []string{recipeOne, recipeFour, bareRead} {
		add(", for comparison", side, "", harness.Goal{})
	}
	return nil
}

// insertOf is transactions with so many messages each.
func insertOf(each int) func(context.Context, *harness.Setup, *tables) error {
	return func(ctx context.Context, s *harness.Setup, t *tables) error {
		s.Multiple = each
		empty := func(ctx context.Context, _ *harness.Timing) error {
			return steps(ctx, t.db, `TRUNCATE `+t.table, `TRUNCATE `+t.more)
		}
		side := func(name string, message bool, notify how) {
			s.Sides = append(s.Sides, harness.Side{Name: name, Prepare: empty,
				Run: (&effects{t, each, message, notify}).run})
		}
		const both, alone = "effect and message", "effect alone"
		const apart, inside = "effect and message, and a Notifier",
			"effect and message, and NOTIFY in the transaction"
		side(both, true, byNobody)
		side(alone, false, byNobody)
		side(apart, true, byNotifier)
		side(inside, true, inTheTransaction)
		s.Pair(
			harness.Pair{Name: fmt.Sprintf(
				"Notifier with InsertTx, %d in a transaction, 8 callers", each), Side: apart,
				Against: both, Metric: harness.Relayed, Goal: harness.AtLeast(0.9, 0)},
			harness.Pair{Name: fmt.Sprintf("NOTIFY in the transaction, %d in it, 8 callers", each),
				Side: inside, Against: both, Metric: harness.Relayed},
			harness.Pair{Name: fmt.Sprintf(
				"InsertTx with the effect, %d in a transaction, 8 callers", each), Side: both,
				Against: alone, Metric: harness.Relayed},
			harness.Pair{Name: "the same without the message", Side: alone,
				Metric: harness.Relayed})
		return steps(ctx, t.db, `CREATE TABLE `+t.more+
			` (id bigserial PRIMARY KEY, body bytea NOT NULL)`)
	}
}
