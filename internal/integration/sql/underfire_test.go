package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// A battlefield is a private server, with the ways to kill its sessions and to crash it.
type battlefield struct {
	name   string
	kind   servertest.Kind
	engine func(addr string) engine
	// victims lists the sessions that may be killed, and kill ends one.
	victims, kill string
	// crashes are ways to stop the server at once.
	crashes []func(*servertest.Server)
	// deadlocks may happen when a transaction rolls back: the transactions that have waited for
	// its rows keep locks on gaps, and then insert into them. DoBatch runs them again, or the
	// next delivery does.
	deadlocks bool
}

func battlefields() []battlefield {
	kill := func(s *servertest.Server) { s.Kill(1) }
	return []battlefield{{
		name: "postgres", kind: servertest.KindPostgres,
		engine: func(addr string) engine {
			return engine{name: "postgres", dialect: sqladapter.Postgres,
				open: func(t *testing.T) *sql.DB {
					return openDB(t, "pgx", postgresURL(t, addr, "cache_statement"))
				}}
		},
		victims: `SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`,
		kill:    `SELECT pg_terminate_backend(%d)`,
		crashes: []func(*servertest.Server){func(s *servertest.Server) { s.Quit(1) }, kill},
	}, {
		name: "mariadb", kind: servertest.KindMariaDB,
		engine: func(addr string) engine {
			return engine{name: "mariadb", dialect: sqladapter.MySQL,
				open: func(t *testing.T) *sql.DB {
					return openDB(t, "mysql", mariadbDSN(t, addr, nil))
				}}
		},
		victims:   `SELECT id FROM information_schema.processlist WHERE user = 'onceward' AND id <> connection_id()`,
		kill:      `KILL %d`,
		crashes:   []func(*servertest.Server){kill},
		deadlocks: true,
	}}
}

// TestUnderFire: 8 workers deliver overlapping batches, each in its own order, while sessions are
// killed and the server crashes and restarts. An acknowledged message has its effect once, and
// every deadlock is handled.
func TestUnderFire(t *testing.T) {
	for _, field := range battlefields() {
		t.Run(field.name, func(t *testing.T) {
			t.Parallel() // each has a server of its own
			pool := func(_ *testing.T, s *shop) workerPool { return byTheBatch(s.atomic) }
			lost, doubled, burnt := field.burn(t, fireCrashes, pool)
			assert.Zero(t, lost, "of %d messages", len(burnt.messages))
			assert.Zero(t, doubled, "of %d messages", len(burnt.messages))
			assert.False(t, burnt.deadlocks > 0 && !field.deadlocks, "%d deadlocks",
				burnt.deadlocks)
		})
	}
}

// poolSize is how many workers byTheBatch has.
const poolSize = 8

// byTheBatch returns workers that each deliver in their own order.
func byTheBatch(deliver func(ctx context.Context, worker int, batch []string) error) workerPool {
	return workerPool{workers: poolSize, batch: 200, deliver: deliver}
}

// burn runs a pool of workers on a private server that crashes, and returns the damage.
func (field battlefield) burn(t *testing.T, crashes int,
	pool func(*testing.T, *shop) workerPool) (lost, doubled int, burnt battle) {
	t.Helper()
	server := servertest.Private(t, field.kind)
	e := field.engine(server.Addr)
	g := &gun{field: field, server: server, admin: e.open(t), rng: rand.New(rand.NewPCG(6, 0))}
	s := newShop(t, e, func(c *sqladapter.Config) { c.Isolation = sql.LevelReadCommitted })
	c := pool(t, s)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { burnt = c.fight(t, stop) })
	t.Cleanup(wg.Wait) // when the test has failed: its context has ended
	for round := range crashes {
		g.shoot(t, fireKills)
		field.crashes[round%len(field.crashes)](server)
		server.Start(1)
	}
	g.shoot(t, fireKills)
	close(stop)
	wg.Wait()
	lost, doubled = s.damage(t, burnt.messages)
	t.Logf("%d messages in %d waves, %d lost, %d doubled; %d sessions killed, %d crashes of the server, %d failed deliveries, %d by deadlocks",
		len(burnt.messages), burnt.waves, lost, doubled, g.killed, crashes, burnt.failed,
		burnt.deadlocks)
	n := len(s.effects(t))
	assert.Equal(t, len(burnt.messages)-lost, n, "%d messages have an effect, of %d", n,
		len(burnt.messages))
	assert.GreaterOrEqual(t, g.killed, fireKills, "there was no fire")
	assert.GreaterOrEqual(t, burnt.failed, int64(crashes), "there was no fire")
	return lost, doubled, burnt
}

// battle is the result of the waves of messages.
type battle struct {
	messages                 []string
	waves, failed, deadlocks int64
}

// fight sends wave after wave of new messages until it is told to stop.
func (c workerPool) fight(t *testing.T, stop <-chan struct{}) (b battle) {
	for {
		wave := make([]string, 1000)
		for i := range wave {
			wave[i] = fmt.Sprintf("wave %d message %d", b.waves, i)
		}
		met := c.run(t, wave, uint64(b.waves))
		b.messages = append(b.messages, wave...)
		b.waves++
		b.failed += met.failed.Load()
		b.deadlocks += met.deadlocks.Load()
		select {
		case <-stop:
			return b
		case <-t.Context().Done():
			return b
		default:
		}
	}
}

// gun kills sessions.
type gun struct {
	field  battlefield
	server *servertest.Server
	admin  *sql.DB
	rng    *rand.Rand
	killed int
}

// shoot kills n sessions, one at a time and at random.
func (g *gun) shoot(t *testing.T, n int) {
	t.Helper()
	pause := time.NewTicker(fireEvery)
	defer pause.Stop()
	for left := n; left > 0; {
		select {
		case <-pause.C:
		case <-t.Context().Done():
			t.Fatalf("%d sessions left to kill: %v", left, context.Cause(t.Context()))
		}
		victims, err := ids(g.admin.QueryContext(t.Context(), g.field.victims))
		if err != nil || len(victims) == 0 {
			continue // the pool of the gun itself was hit by the crash, or nobody is there yet
		}
		victim := victims[g.rng.IntN(len(victims))]
		if _, err := g.admin.ExecContext(t.Context(),
			fmt.Sprintf(g.field.kill, victim)); err == nil {
			g.killed++
			left--
		}
	}
}

func ids(rows *sql.Rows, err error) (all []int64, _ error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		all = append(all, id)
	}
	return all, rows.Err()
}
