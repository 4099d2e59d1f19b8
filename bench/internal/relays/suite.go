package relays

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/outbox"
)

// Env is where the workloads run.
type Env struct {
	Postgres *Postgres
	// WakeUps is how many messages one by one are looked at.
	WakeUps int
	tables  int
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

// Groups are all workloads.
func (e *Env) Groups() []harness.Group {
	return []harness.Group{
		{Workload: "relay", X: 0, Title: "relay, broker at 0 ms", Open: func(ctx context.Context) (harness.Setup, error) {
			return e.relay(ctx, 0, harness.AtLeast(50, 79), "outbox relay, four relays, order per key, broker at 0 ms")
		}},
		{Workload: "relay", X: 1, Title: "relay, broker at 1 ms", Open: func(ctx context.Context) (harness.Setup, error) {
			return e.relay(ctx, time.Millisecond, harness.AtLeast(150, 257), "outbox relay, four relays, order per key, broker at 1 ms")
		}},
		{Workload: "wake-up", Title: "wake-up by polling", Measure: func(ctx context.Context) ([]harness.Row, error) {
			return e.wakeUp(ctx, byPolling, harness.ValueAtMost(15, 0, "ms"))
		}},
		{Workload: "wake-up", Title: "wake-up by a signal", Measure: func(ctx context.Context) ([]harness.Row, error) {
			return e.wakeUp(ctx, bySignal, harness.ValueAtMost(5, 0, "ms"))
		}},
		{Workload: "wake-up", Title: "wake-up by a signal across processes", Measure: func(ctx context.Context) ([]harness.Row, error) {
			return e.wakeUp(ctx, byNotifyAway, harness.ValueAtMost(5, 0, "ms"))
		}},
		{Workload: "insert", X: 1, Title: "insert, one message a transaction", Open: func(ctx context.Context) (harness.Setup, error) {
			return e.insert(ctx, 1)
		}},
		{Workload: "insert", X: 100, Title: "insert, 100 messages a transaction", Open: func(ctx context.Context) (harness.Setup, error) {
			return e.insert(ctx, 100)
		}},
	}
}

// house is the tables of one group.
type house struct {
	db    *sql.DB
	box   *outbox.Outbox
	table string
	more  string // a table beside it
}

// house makes them.
func (e *Env) house(ctx context.Context) (*house, error) {
	e.tables++
	h := &house{db: e.Postgres.DB, table: fmt.Sprintf("bench_outbox_%d", e.tables)}
	h.more = h.table + "_beside"
	var err error
	if h.box, err = outbox.New(outbox.Config{Dialect: outbox.Postgres, Table: h.table}); err != nil {
		return nil, err
	}
	if err := h.box.Migrate(ctx, h.db); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *house) close() {
	ctx := context.Background() // also after an interrupt
	_, _ = h.db.ExecContext(ctx, `DROP TABLE IF EXISTS `+h.more)
	_ = h.box.MigrateDown(ctx, h.db, 0)
}

func (e *Env) relay(ctx context.Context, trip time.Duration, goal harness.Goal, name string) (harness.Setup, error) {
	h, err := e.house(ctx)
	if err != nil {
		return harness.Setup{}, err
	}
	err = steps(ctx, h.db, `CREATE TABLE `+h.more+` (id bigserial PRIMARY KEY, topic text NOT NULL, payload text NOT NULL, published_at timestamptz)`,
		`CREATE INDEX ON `+h.more+` (id) WHERE published_at IS NULL`)
	if err != nil {
		return harness.Setup{}, err
	}
	all := &ours{h.db, h.box, h.table, 4, trip}
	lone := &ours{h.db, h.box, h.table, 1, trip}
	r1, r4 := &recipe{h.db, h.more, 1, trip}, &recipe{h.db, h.more, 4, trip}
	setup := harness.Setup{
		Sides: []harness.Side{
			{Name: four, Prepare: all.fill, Run: all.run},
			{Name: one, Prepare: lone.fill, Run: lone.run},
			{Name: recipeOne, Prepare: r1.fill, Run: r1.run},
			{Name: recipeFour, Prepare: r4.fill, Run: r4.run},
			{Name: bareRead, Prepare: all.fill, Run: all.bare},
		},
		Pairs: []harness.Pair{
			{Name: name, Side: four, Against: recipeOne, Metric: harness.Relayed, Goal: goal},
			{Name: name, Side: four, Against: bareRead, Metric: harness.Relayed},
			{Name: name, Side: four, Against: recipeFour, Metric: harness.Relayed},
			{Name: name + ", but one relay", Side: one, Against: recipeOne, Metric: harness.Relayed},
			{Name: name + ", for comparison", Side: recipeOne, Metric: harness.Relayed},
			{Name: name + ", for comparison", Side: recipeFour, Metric: harness.Relayed},
			{Name: name + ", for comparison", Side: bareRead, Metric: harness.Relayed},
		},
		MinKeys: 1000, Close: h.close,
	}
	if trip == 0 {
		setup.Pairs[1].Goal = harness.AtLeast(0.3, 0)
	}
	return setup, nil
}

func (e *Env) insert(ctx context.Context, each int) (harness.Setup, error) {
	h, err := e.house(ctx)
	if err != nil {
		return harness.Setup{}, err
	}
	if err := steps(ctx, h.db, `CREATE TABLE `+h.more+` (id bigserial PRIMARY KEY, body bytea NOT NULL)`); err != nil {
		return harness.Setup{}, err
	}
	side := func(message bool, notify how) *effects { return &effects{h.db, h.box, h.more, each, message, notify} }
	empty := func(ctx context.Context, _ *harness.Timing) error {
		return steps(ctx, h.db, `TRUNCATE `+h.table, `TRUNCATE `+h.more)
	}
	const told, alone = "effect and message", "effect alone"
	const apart, inside = "effect and message, and a Notifier", "effect and message, and NOTIFY in the transaction"
	return harness.Setup{
		Sides: []harness.Side{
			{Name: told, Prepare: empty, Run: side(true, byNobody).run}, {Name: alone, Prepare: empty, Run: side(false, byNobody).run},
			{Name: apart, Prepare: empty, Run: side(true, byNotifier).run}, {Name: inside, Prepare: empty, Run: side(true, inTheTransaction).run},
		},
		Pairs: []harness.Pair{
			{Name: fmt.Sprintf("Notifier beside InsertTx, %d in a transaction, 8 callers", each), Side: apart, Against: told, Metric: harness.Relayed, Goal: harness.AtLeast(0.9, 0)},
			{Name: fmt.Sprintf("NOTIFY in the transaction, %d in it, 8 callers", each), Side: inside, Against: told, Metric: harness.Relayed},
			{Name: fmt.Sprintf("InsertTx beside the effect, %d in a transaction, 8 callers", each), Side: told, Against: alone, Metric: harness.Relayed},
			{Name: "the same without the message", Side: alone, Metric: harness.Relayed},
		},
		Multiple: each, Close: h.close,
	}, nil
}

// Versions of what takes part.
func (e *Env) Versions() map[string]string {
	return harness.Versions(map[string]string{"github.com/jackc/pgx/v5": "pgx"})
}
