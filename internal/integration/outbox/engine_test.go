// Package outbox_test runs the outbox on real databases: SQLite always, PostgreSQL and MariaDB
// when the environment names them.
package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
)

// engine is a database through one driver.
type engine struct {
	name    string
	driver  string
	dialect outbox.Dialect
	dsn     func(t *testing.T) string
}

func postgres() engine {
	return engine{"postgres", "pgx", outbox.Postgres,
		dsnOf(servertest.EnvPostgres, servertest.Postgres, servertest.KindPostgres)}
}

func mariadb() engine {
	return engine{"mariadb", "mysql", outbox.MySQL,
		dsnOf(servertest.EnvMariaDB, servertest.MariaDB, servertest.KindMariaDB)}
}

// dsnOf returns the shared server. If there is none and tests start their own servers, it is a
// private one.
func dsnOf(env string, shared func(testing.TB) string,
	own servertest.Kind) func(*testing.T) string {
	return func(t *testing.T) string {
		if os.Getenv(env) == "" && os.Getenv(servertest.EnvServers) == "1" {
			return servertest.Private(t, own).Addr
		}
		return shared(t)
	}
}

func sqlite() engine {
	return engine{"sqlite", "sqlite", outbox.SQLite, func(t *testing.T) string {
		return "file:" + filepath.Join(t.TempDir(), "outbox.db") +
			"?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)"
	}}
}

// postgresIn is PostgreSQL through another query mode of pgx, which sends parameters as unnamed
// text, or inside the statement.
func postgresIn(mode string) engine {
	return engine{"postgres/" + mode, "pgx", outbox.Postgres, func(t *testing.T) string {
		return postgres().dsn(t) + "&default_query_exec_mode=" + mode
	}}
}

// runOn runs a test against an engine, next to those of other engines: most of what a test does is
// to wait for its server.
func runOn(t *testing.T, e engine, test func(t *testing.T, e engine)) {
	t.Helper()
	t.Run(e.name, func(t *testing.T) {
		t.Parallel()
		test(t, e)
	})
}

// forEach runs a test against every engine.
func forEach(t *testing.T, test func(t *testing.T, e engine)) {
	for _, e := range []engine{postgres(), mariadb(), sqlite()} {
		runOn(t, e, test)
	}
}

// forEachServer leaves SQLite out, where one relay works at a time.
func forEachServer(t *testing.T, test func(t *testing.T, e engine)) {
	for _, e := range []engine{postgres(), mariadb()} {
		runOn(t, e, test)
	}
}

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, db.Close())
	})
	db.SetMaxIdleConns(32)
	return db
}

// house is an outbox of one test.
type house struct {
	e     engine
	dsn   string
	db    *sql.DB
	table string
	box   *outbox.Outbox
}

func newHouse(t *testing.T, e engine) *house { return newHouseAt(t, e, e.dsn(t)) }

func newHouseAt(t *testing.T, e engine, dsn string) *house {
	t.Helper()
	h := &house{e: e, dsn: dsn, db: openDB(t, e.driver, dsn), table: servertest.Prefix(t)}
	box, err := outbox.New(outbox.Config{Dialect: e.dialect, Table: h.table})
	require.NoError(t, err)
	h.box = box
	require.NoError(t, box.Migrate(t.Context(), h.db))
	t.Cleanup(func() {
		assert.NoError(t, box.MigrateDown(context.Background(), h.db, 0))
	})
	return h
}

// exec also works in a cleanup, when the test's context has ended.
func (h *house) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if h.e.dialect == outbox.Postgres {
		for i := range args {
			query = strings.Replace(query, "?", fmt.Sprintf("$%d", i+1), 1)
		}
	}
	_, err := h.db.ExecContext(context.WithoutCancel(t.Context()), query, args...)
	assert.NoError(t, err)
}

// insert is one transaction with nothing else in it.
func (h *house) insert(t *testing.T, messages ...outbox.Message) {
	t.Helper()
	require.NoError(t, h.insertIn(t.Context(), func() {}, messages...))
}

// insertIn waits between the insert and the commit.
func (h *house) insertIn(ctx context.Context, wait func(), messages ...outbox.Message) error {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := h.box.InsertTx(ctx, tx, messages...); err != nil {
		return err
	}
	wait()
	return tx.Commit()
}

// relay returns a relay whose errors are logged, and that fails the test when it parks a message.
func (h *house) relay(t *testing.T, p outbox.Publisher,
	edit ...func(*outbox.RelayConfig)) *outbox.Relay {
	t.Helper()
	cfg := outbox.RelayConfig{
		Outbox: h.box, DB: h.db, Publisher: p, RetryMin: time.Millisecond,
		RetryMax: 20 * time.Millisecond,
		OnPark:   func(_ context.Context, p outbox.Parked) { t.Errorf("parked: %+v", p) },
		OnError:  func(err error) { t.Logf("relay: %v", err) },
	}
	for _, f := range edit {
		f(&cfg)
	}
	r, err := outbox.NewRelay(cfg)
	require.NoError(t, err)
	return r
}

// start runs a relay until stop is called, at the latest at the end of the test.
func start(t *testing.T, r *outbox.Relay) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		assert.NoError(t, <-ended)
	}
	t.Cleanup(stop)
	return stop
}

// patience is more than any step needs, on a busy machine.
const patience = 4 * time.Minute

// limit is for a wait: patience, or a third of what is left of -timeout. A test that -timeout ends
// does not say what it waited for, and its servers keep running.
func limit(t *testing.T) time.Duration {
	t.Helper()
	if end, ok := t.Deadline(); ok {
		return min(patience, time.Until(end)/3)
	}
	return patience
}

// eventually polls, for events that nothing signals.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	most := limit(t)
	ended := time.After(most)
	for !is() {
		select {
		case <-tick.C:
		case <-ended:
			t.Fatalf("not in %v: %s", most, what)
		}
	}
}

// drained waits until the table is empty.
func (h *house) drained(t *testing.T) {
	t.Helper()
	var lag outbox.Lag
	eventually(t, "the outbox is empty", func() bool {
		var err error
		if lag, err = h.box.Lag(t.Context(), h.db); err != nil {
			t.Logf("Lag: %v", err)
			return false
		}
		return lag.Pending == 0
	})
	assert.Zero(t, lag.Oldest)
}
