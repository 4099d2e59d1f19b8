package server

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers pgx
	_ "modernc.org/sqlite"             // registers sqlite

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/sqladapter"
)

// Database is a running database.
type Database struct {
	Dialect sqladapter.Dialect
	// URL for pgx, or the data source name of the others.
	URL string
	// Own says that nobody else uses it.
	Own bool

	process // that was started here; SQLite has the folder of its file
}

// kind of a dialect: its name for people and for scripts/servers.sh, the name of its driver, and
// how it is asked for its version.
type kind struct{ name, script, driver, version string }

var kinds = map[sqladapter.Dialect]kind{
	sqladapter.Postgres: {"PostgreSQL", "postgres", "pgx", `SHOW server_version`},
	sqladapter.MySQL:    {"MariaDB", "mariadb", "mysql", `SELECT version()`},
	sqladapter.SQLite:   {"SQLite", "", "sqlite", `SELECT sqlite_version()`},
}

// OpenDatabase starts a server of this dialect on loopback, with scripts/servers.sh, or connects to
// one, and adds it to the run: address is [Private], [Listed], or what the driver takes. [None]
// gives nil, and is noted as left out. SQLite is a file in a new folder, whatever the address. A
// port of 0 is any free one. Close ends what OpenDatabase has begun. ctx bounds the start only.
func OpenDatabase(ctx context.Context, b *harness.Bench, dialect sqladapter.Dialect,
	address string, port int) *Database {
	s := &Database{Dialect: dialect, URL: address}
	if address == None {
		b.LeaveOut(s.Name() + ": there is none")
		return nil
	}
	b.Servers = append(b.Servers, s)
	switch {
	case address == Listed:
		return s
	case dialect == sqladapter.SQLite:
		const set = "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)" +
			"&_pragma=synchronous(FULL)"
		s.dir, s.Own = must.Get(os.MkdirTemp("", "onceward-bench")), true
		s.URL = "file:" + filepath.Join(s.dir, "bench.db") + set
	case address == Private:
		s.Own = true
		s.URL = s.start(ctx, kinds[dialect].script, port)
	}
	if dialect == sqladapter.MySQL {
		// Parameters in the text instead of a statement that is prepared for every call.
		cfg := must.Get(mysql.ParseDSN(s.URL))
		cfg.InterpolateParams = true
		s.URL = cfg.FormatDSN()
	}
	return s
}

// Close stops the server if it was started here, and removes its files.
func (s *Database) Close() error { return s.stop() }

// Name of the engine, for people and among the versions.
func (s *Database) Name() string { return kinds[s.Dialect].name }

// Kind says in words where the server is.
func (s *Database) Kind() string {
	switch {
	case !s.Own:
		return "a " + s.Name() + " that others use"
	case s.Dialect == sqladapter.SQLite:
		return s.Name() + " in a file, every commit on disk"
	default:
		return s.Name() + " on loopback, every commit on disk"
	}
}

// CPU reads the CPU time of all processes of the server; nil where it is unknown: the server is not
// ours, or this is not Linux.
func (s *Database) CPU() harness.CPU { return cpuOf(s.pid) }

// Pool opens n connections at most, and keeps them.
func (s *Database) Pool(n int) *sql.DB {
	db := must.Get(sql.Open(kinds[s.Dialect].driver, s.URL))
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db
}

// Version of the server, a number.
func (s *Database) Version(ctx context.Context) (version string) {
	db := s.Pool(1)
	err := db.QueryRowContext(ctx, kinds[s.Dialect].version).Scan(&version)
	must.Do(errors.Join(err, db.Close()))
	version, _, _ = strings.Cut(version, " ")
	version, _, _ = strings.Cut(version, "-")
	return version
}
