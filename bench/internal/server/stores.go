package server

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers pgx
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // registers sqlite

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/sqladapter"
)

// Redis is a running Redis.
type Redis struct {
	harness.Server
	harness.Cleanup // stops the server that was started
	Addr            string
	Own             bool // nobody else uses it: it may be emptied, and its memory measured
	// Embedded says that it runs in this process. Then it has no CPU time and no memory of its own,
	// and its work counts as work of the client.
	Embedded bool

	client *redis.Client
}

// Open starts a Redis or connects to one, and adds it to the run. which is [Private] (without
// persistence), [Durable], [Embedded], [Listed] or host:port. ctx bounds only the start.
func Open(ctx context.Context, b *harness.Bench, which string) *Redis {
	s := &Redis{Addr: which}
	s.Name, s.Kind = "redis", "a Redis that others use"
	s.Version = func(ctx context.Context) string { return s.info(ctx, "Server")["redis_version"] }
	b.Servers = append(b.Servers, &s.Server)
	b.Defer(s.Close)
	switch which {
	case Listed:
		s.Own = true
		return s
	case Embedded:
		mini := must.Get(miniredis.Run())
		s.Addr, s.Own, s.Embedded, s.Kind = mini.Addr(), true, true, "embedded miniredis"
		s.Version = func(context.Context) string { return s.Kind }
		s.Defer(func() error { mini.Close(); return nil })
	case Private, Durable:
		p := &process{}
		s.DeferCtx(p.stop)
		s.Addr, s.Own = p.start(ctx, "redis"), true
		s.Kind = "Redis on loopback, its append-only file synced each second"
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.Addr})
	s.Defer(s.client.Close)
	must.Do(s.client.Ping(ctx).Err())
	if which == Private {
		// The benchmarks compare the cost of commands, not of a disk.
		s.Kind = "Redis on loopback, without persistence"
		must.Do(s.client.ConfigSet(ctx, "appendonly", "no").Err())
	}
	return s
}

// CPU returns a function that reads the time of the thread that executes commands; nil for an
// embedded Redis.
func (s *Redis) CPU() harness.CPU {
	if s.Embedded {
		return nil
	}
	return func(ctx context.Context) time.Duration {
		info, total := s.info(ctx, "CPU"), 0.0
		for _, mode := range []string{"used_cpu_sys", "used_cpu_user"} {
			text := cmp.Or(info[mode+"_main_thread"], info[mode])
			total += must.Get(strconv.ParseFloat(text, 64))
		}
		return time.Duration(total * float64(time.Second))
	}
}

// Memory returns what the server has allocated, in bytes. It returns 0 if the server is not a
// process of its own, or if the number is unknown.
func (s *Redis) Memory(ctx context.Context) int {
	if s.Embedded || !s.Own {
		return 0
	}
	return must.Get(strconv.Atoi(s.info(ctx, "Memory")["used_memory"]))
}

// Empty removes every key of every database. It refuses to do so on a server that others use.
func (s *Redis) Empty(ctx context.Context) {
	must.True(s.Own, "server: others use this Redis: it is not emptied")
	must.Do(s.client.FlushAll(ctx).Err())
}

// Clear empties the server, unless others use it.
func (s *Redis) Clear(ctx context.Context) {
	if s.Own {
		s.Empty(ctx)
	}
}

// NewClient returns a go-redis client with the settings of the benchmarks, until the setup ends. It
// speaks RESP2 or 3 as go-redis chooses, has room for every caller, and obeys deadlines.
func NewClient(setup *harness.Setup, addr string, db, pool int) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, DB: db, PoolSize: pool,
		ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, PoolTimeout: time.Minute,
		ContextTimeoutEnabled: true})
	setup.Defer(client.Close)
	return client
}

func (s *Redis) info(ctx context.Context, section string) map[string]string {
	return must.Get(s.client.InfoMap(ctx, section).Result())[section]
}

// Database is a running database.
type Database struct {
	harness.Server
	harness.Cleanup
	Dialect sqladapter.Dialect
	URL     string // for pgx, or the data source name for other drivers

	process // the server that was started here; for SQLite the folder of its file
}

// kinds has, for each dialect, its name for people and for scripts/servers.sh, the name of its
// driver, and the query for its version.
var kinds = map[sqladapter.Dialect]struct{ name, script, driver, version string }{
	sqladapter.Postgres: {"PostgreSQL", "postgres", "pgx", `SHOW server_version`},
	sqladapter.MySQL:    {"MariaDB", "mariadb", "mysql", `SELECT version()`},
	sqladapter.SQLite:   {"SQLite", "", "sqlite", `SELECT sqlite_version()`},
}

// OpenDatabase starts a server of this dialect on loopback, or connects to one, and adds it to the
// run. address is [Private], [Listed], or what the driver takes. For [None] it returns nil, and the
// results list the server as left out. SQLite is always a file in a new folder. ctx bounds only the
// start.
func OpenDatabase(ctx context.Context, b *harness.Bench, dialect sqladapter.Dialect,
	address string) *Database {
	name := kinds[dialect].name
	if address == None {
		b.LeaveOut(name + ": there is none")
		return nil
	}
	s := &Database{Dialect: dialect, URL: address}
	s.Name, s.Kind, s.Version = name, "a "+name+" that others use", s.version
	b.Servers = append(b.Servers, &s.Server)
	b.Defer(s.Close)
	s.DeferCtx(s.stop)
	switch {
	case address == Listed:
		return s
	case dialect == sqladapter.SQLite:
		const set = "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)" +
			"&_pragma=synchronous(FULL)"
		s.dir = must.Get(os.MkdirTemp("", "onceward-bench"))
		s.URL = "file:" + filepath.Join(s.dir, "bench.db") + set
		s.Kind = name + " in a file, every commit on disk"
	case address == Private:
		s.Kind = name + " on loopback, every commit on disk"
		s.URL = s.start(ctx, kinds[dialect].script)
	}
	if dialect == sqladapter.MySQL {
		// This makes the driver write the parameters into the statement's text, instead of
		// preparing a statement for every call.
		cfg := must.Get(mysql.ParseDSN(s.URL))
		cfg.InterpolateParams = true
		s.URL = cfg.FormatDSN()
	}
	return s
}

// CPU returns a function that reads the CPU time of all processes of the server; nil if it is
// unknown.
func (s *Database) CPU() harness.CPU { return cpuOf(s.pid) }

// Pool opens at most n connections, and keeps them open.
func (s *Database) Pool(n int) *sql.DB {
	db := must.Get(sql.Open(kinds[s.Dialect].driver, s.URL))
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db
}

// Scan calls scan for each row of a query, and returns the number of rows. q is a pool, or a
// transaction of one.
func Scan(ctx context.Context, q sqladapter.Tx, scan func(*sql.Rows) error, query string,
	args ...any) (n int) {
	rows, err := q.QueryContext(ctx, query, args...)
	must.Do(err)
	defer func() { _ = rows.Close() }()
	for ; rows.Next(); n++ {
		must.Do(scan(rows))
	}
	must.Do(rows.Err())
	return n
}

func (s *Database) version(ctx context.Context) (version string) {
	db := s.Pool(1)
	err := db.QueryRowContext(ctx, kinds[s.Dialect].version).Scan(&version)
	must.Do(errors.Join(err, db.Close()))
	version, _, _ = strings.Cut(version, " ")
	version, _, _ = strings.Cut(version, "-")
	return version
}
