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
	harness.Server
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

// OpenDatabase starts a server of this dialect on loopback, with scripts/servers.sh, or connects to
// one, and adds it to the run: address is [Private], [Listed], or what the driver takes. [None]
// gives nil, and is noted as left out. SQLite is a file in a new folder, whatever the address.
// Close ends what OpenDatabase has begun. ctx bounds the start only.
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

// Close stops the server if it was started here, and removes its files.
func (s *Database) Close() error { return s.stop() }

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

func (s *Database) version(ctx context.Context) (version string) {
	db := s.Pool(1)
	err := db.QueryRowContext(ctx, kinds[s.Dialect].version).Scan(&version)
	must.Do(errors.Join(err, db.Close()))
	version, _, _ = strings.Cut(version, " ")
	version, _, _ = strings.Cut(version, "-")
	return version
}
