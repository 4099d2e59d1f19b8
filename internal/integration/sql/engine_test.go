// Package sql_test runs sqladapter against real databases: SQLite always, PostgreSQL and
// MariaDB when the environment names them, PostgreSQL through several modes of its driver.
package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/internal/sqlname"
	"github.com/onceward/onceward/sqladapter"
)

// engine is a database through one driver in one mode.
type engine struct {
	name    string
	dialect sqladapter.Dialect
	open    func(t *testing.T) *sql.DB
	// pgx has the runners of a shop, and the fences of a till, in transactions of pgx.
	pgx bool
	// retention of the marks; Generations have a window of an hour unless a test sets another.
	retention sqladapter.Retention
}

func sqlite() engine {
	return engine{name: "sqlite", dialect: sqladapter.SQLite, open: func(t *testing.T) *sql.DB {
		return openDB(t, "sqlite", sqliteDSN(filepath.Join(t.TempDir(), "marks.db"), "immediate"))
	}}
}

// sqliteDSN waits for a lock for long enough to outlast any test, so that nothing in a
// test depends on speed.
func sqliteDSN(file, txlock string) string {
	return "file:" + file + "?_txlock=" +
		txlock + "&_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)"
}

// postgres sends parameters differently in each mode: as described by the server, as unnamed text,
// or inside the text of the statement.
func postgres(mode string) engine {
	return engine{name: "postgres/" + mode, dialect: sqladapter.Postgres,
		open: func(t *testing.T) *sql.DB {
			return openDB(t, "pgx", postgresURL(t, servertest.Postgres(t), mode))
		}}
}

// inGenerations keeps the marks of an engine in generations.
func inGenerations(e engine) engine {
	e.name, e.retention = e.name+"+generations", sqladapter.Generations
	return e
}

func postgresURL(t *testing.T, base, mode string) string {
	t.Helper()
	u, err := url.Parse(base)
	require.NoError(t, err)
	q := u.Query()
	q.Set("default_query_exec_mode", mode)
	q.Set("deadlock_timeout", "10ms") // is 1 s by default, and a deadlock would last as long
	u.RawQuery = q.Encode()
	return u.String()
}

// mariadb reads double quotes as the other engines do, so that the tests can use one text for all
// engines. The statements of sqladapter do not depend on it.
func mariadb() engine {
	return engine{name: "mariadb", dialect: sqladapter.MySQL, open: func(t *testing.T) *sql.DB {
		return openDB(t, "mysql", mariadbDSN(t, servertest.MariaDB(t), nil))
	}}
}

func mariadbDSN(t *testing.T, base string, edit func(*mysql.Config)) string {
	t.Helper()
	cfg, err := mysql.ParseDSN(base)
	require.NoError(t, err)
	cfg.Params = map[string]string{"sql_mode": "'ANSI_QUOTES,STRICT_TRANS_TABLES'"}
	if edit != nil {
		edit(cfg)
	}
	return cfg.FormatDSN()
}

func postgresModes() []engine {
	return []engine{postgres("cache_statement"), postgres("exec"), postgres("simple_protocol")}
}

// runOn runs a test against an engine, in parallel with those of other engines: a test mostly waits
// for its server.
func runOn(t *testing.T, e engine, test func(t *testing.T, e engine)) {
	t.Helper()
	t.Run(e.name, func(t *testing.T) {
		t.Parallel()
		test(t, e)
	})
}

// forEach runs a test against every engine.
func forEach(t *testing.T, test func(t *testing.T, e engine)) {
	forEachInGenerations(t, test)
	forEachDeleting(t, test)
}

// pgxEngine is PostgreSQL through a pool of pgx, with nothing of database/sql between.
func pgxEngine() engine {
	e := postgres("cache_statement")
	e.name, e.pgx = "postgres/pgx", true
	return e
}

// forEachClient is forEach, and PostgreSQL through pgx.
func forEachClient(t *testing.T, test func(t *testing.T, e engine)) {
	forEach(t, test)
	e := pgxEngine()
	runOn(t, e, test)
}

// forEachInGenerations runs a test that is about retention by generations.
func forEachInGenerations(t *testing.T, test func(t *testing.T, e engine)) {
	for _, e := range []engine{inGenerations(postgres("cache_statement")),
		inGenerations(mariadb())} {
		runOn(t, e, test)
	}
}

// forEachDeleting runs a test of retention by deletes, or of tables that are not for marks.
func forEachDeleting(t *testing.T, test func(t *testing.T, e engine)) {
	for _, e := range append(postgresModes(), sqlite(), mariadb()) {
		runOn(t, e, test)
	}
}

// forEachFence is forEachDeleting, and PostgreSQL through pgx.
func forEachFence(t *testing.T, test func(t *testing.T, e engine)) {
	forEachDeleting(t, test)
	e := pgxEngine()
	runOn(t, e, test)
}

// forEachPostgres runs a test that is about PostgreSQL alone.
func forEachPostgres(t *testing.T, test func(t *testing.T, e engine)) {
	for _, e := range append(postgresModes(), inGenerations(postgres("cache_statement"))) {
		runOn(t, e, test)
	}
}

func openDB(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, db.Close())
	})
	db.SetMaxIdleConns(32)
	return db
}

// shop is a table of marks and a ledger of effects. The ledger is append-only and has no unique
// constraint: a doubled effect is two rows.
type shop struct {
	db      *sql.DB
	marks   *sqladapter.Ledger
	dialect sqladapter.Dialect
	table   string
	ledger  string
	// level of the transactions that deliver begins.
	level sql.IsolationLevel
	// pool is of an engine with pgx, and nil otherwise.
	pool *pgxpool.Pool
}

func newShop(t *testing.T, e engine, edit ...func(*sqladapter.Config)) *shop {
	t.Helper()
	db := e.open(t)
	name := servertest.Prefix(t)
	cfg := sqladapter.Config{Dialect: e.dialect, Namespace: "shop", Table: name + "_marks"}
	if cfg.Retention = e.retention; cfg.Retention == sqladapter.Generations {
		cfg.Window = time.Hour
	}
	for _, f := range edit {
		f(&cfg)
	}
	marks, err := sqladapter.New(cfg)
	require.NoError(t, err)
	s := &shop{db: db, marks: marks, dialect: e.dialect, table: cfg.Table, ledger: name + "_ledger",
		level: cfg.Isolation}
	if e.pgx {
		s.pool = openPool(t, postgresURL(t, servertest.Postgres(t), "cache_statement"))
	}
	t.Cleanup(func() { s.drop(t); s.exec(t, `DROP TABLE IF EXISTS `+s.ledger) })
	require.NoError(t, marks.Migrate(t.Context(), db))
	s.exec(t, `CREATE TABLE `+s.ledger+` (message text NOT NULL)`)
	return s
}

// drop removes the tables of Migrate, and those that a test has put in their place.
func (s *shop) drop(t *testing.T) {
	t.Helper()
	assert.NoError(t, s.marks.Migrations().To(context.WithoutCancel(t.Context()), s.db, 0))
	if s.dialect == sqladapter.Postgres {
		s.dropGenerations(t)
	}
	for _, suffix := range []string{"", "_results", "_meta"} {
		s.exec(t, `DROP TABLE IF EXISTS "`+sqlname.Derive(s.table, suffix)+`"`)
	}
}

// exec also works in a cleanup, when the test's context has ended.
func (s *shop) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	_, err := s.db.ExecContext(context.WithoutCancel(t.Context()), query, args...)
	assert.NoError(t, err, query)
}

// execTx is a transaction of any client that an effect writes through.
type execTx interface {
	sqladapter.Tx
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// effect writes to the ledger in the message's transaction.
func (s *shop) effect(ctx context.Context, tx execTx, message string) error {
	query := `INSERT INTO ` + s.ledger + ` (message) VALUES (?)`
	if s.dialect == sqladapter.Postgres {
		query = strings.Replace(query, "?", "$1", 1)
	}
	_, err := tx.ExecContext(ctx, query, message)
	return err
}

// deliver is one delivery of a message as documented: begin, mark, effect, commit. beforeCommit may
// be nil.
func (s *shop) deliver(ctx context.Context, message string,
	beforeCommit func(tx *sql.Tx)) (first bool, err error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: s.level})
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	mark, err := s.marks.MarkTx(ctx, tx, message)
	if err != nil {
		return false, err
	}
	if mark.First() {
		if err := s.effect(ctx, tx, message); err != nil {
			return false, err
		}
	}
	if beforeCommit != nil {
		beforeCommit(tx)
	}
	return mark.First(), tx.Commit()
}

// maxDeliveries is more than any test needs. A test that reaches it is in a loop.
const maxDeliveries = 50

// redeliver delivers until the message may be acknowledged, as a broker would.
func (s *shop) redeliver(ctx context.Context, message string) (first bool, err error) {
	for range maxDeliveries {
		if first, err = s.deliver(ctx, message, nil); err == nil || !sqladapter.Retryable(err) {
			return first, err
		}
	}
	return first, fmt.Errorf("gave up after %d deliveries: %w", maxDeliveries, err)
}

// wantEffects requires that the ledger has each message once, and no others.
func (s *shop) wantEffects(t *testing.T, messages []string) {
	t.Helper()
	counts := s.effects(t)
	for _, message := range messages {
		assert.Equal(t, 1, counts[message], "effect of %q happened", message)
		delete(counts, message)
	}
	assert.Empty(t, counts, "effects nobody asked for")
}

// effects counts the rows of each message in the ledger.
func (s *shop) effects(t *testing.T) map[string]int {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(),
		`SELECT message, count(*) FROM `+s.ledger+` GROUP BY message`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	counts := map[string]int{}
	for rows.Next() {
		var message string
		var n int
		require.NoError(t, rows.Scan(&message, &n))
		counts[message] = n
	}
	require.NoError(t, rows.Err())
	return counts
}

// wantMark checks what is committed for a message.
func (s *shop) wantMark(t *testing.T, message string, want bool) {
	t.Helper()
	mark, found, err := s.marks.Lookup(t.Context(), s.db, message)
	require.NoError(t, err)
	assert.Equal(t, want, found)
	assert.False(t, found && mark.Outcome != dedup.Duplicate, "Lookup(%q): outcome %v", message,
		mark.Outcome)
}

func begin(t *testing.T, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func messages(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("message %04d", i)
	}
	return all
}
