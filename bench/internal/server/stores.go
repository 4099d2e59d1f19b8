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
	harness.Cleanup // stops what was started
	Addr            string
	Own             bool // nobody else uses it: it may be emptied, and its memory compared
	// Embedded says that it runs in this process: it has no CPU time and no memory of its
	// own, and its work counts as the client's.
	Embedded bool

	client *redis.Client
}

// Open starts a Redis or connects to one, and adds it to the run. which is [Private] (without
// persistence), [Durable], [Embedded], [Listed] or host:port. ctx bounds the start only.
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

// CPU reads the time that the thread which executes commands has used; nil for the embedded one.
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

// Memory is what the server has allocated, in bytes; 0 where it is not its own, or not known.
func (s *Redis) Memory(ctx context.Context) int {
	if s.Embedded || !s.Own {
		return 0
	}
	return must.Get(strconv.Atoi(s.info(ctx, "Memory")["used_memory"]))
}

// Empty removes every key of every database; it refuses on a server that others use.
func (s *Redis) Empty(ctx context.Context) {
	must.True(s.Own, "server: others use this Redis: it is not emptied")
	must.Do(s.client.FlushAll(ctx).Err())
}

// Clear empties the server, but not one that others use.
func (s *Redis) Clear(ctx context.Context) {
	if s.Own {
		s.Empty(ctx)
	}
}

// NewClient returns a go-redis client as the benchmarks use it, for the time of a setup: RESP2 or 3
// as go-redis chooses, with room for every caller, and with deadlines that count.
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
	URL     string // for pgx, or the data source name of the others

	process // that was started here; SQLite has the folder of its file
}

// kinds are a dialect's name for people and for scripts/servers.sh, the name of its driver, and how
// it is asked for its version.
var kinds = map[sqladapter.Dialect]struct{ name, script, driver, version string }{
	sqladapter.Postgres: {"PostgreSQL", "postgres", "pgx", `SHOW server_version`},
	sqladapter.MySQL:    {"MariaDB", "mariadb", "mysql", `SELECT version()`},
	sqladapter.SQLite:   {"SQLite", "", "sqlite", `SELECT sqlite_version()`},
}

// OpenDatabase starts a server of this dialect on loopback, or connects to one, and adds it to the
// run: address is [Private], [Listed], or what the driver takes. [None] gives nil, and is noted as
// left out. SQLite is a file in a new folder, whatever the address. ctx bounds the start only.
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
		// Parameters in the text instead of a statement that is prepared for every call.
		cfg := must.Get(mysql.ParseDSN(s.URL))
		cfg.InterpolateParams = true
		s.URL = cfg.FormatDSN()
	}
	return s
}

// CPU reads the CPU time of all processes of the server; nil where it is unknown.
func (s *Database) CPU() harness.CPU { return cpuOf(s.pid) }

// Pool opens n connections at most, and keeps them.
func (s *Database) Pool(n int) *sql.DB {
	db := must.Get(sql.Open(kinds[s.Dialect].driver, s.URL))
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db
}

// Scan calls scan for each row of a query's, and returns how many there are. q is a pool, or a
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
