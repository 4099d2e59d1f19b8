package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers pgx
	_ "modernc.org/sqlite"             // registers sqlite

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
// one: address is [Private], [Listed], or what the driver takes. SQLite is a file in a new folder,
// whatever the address. A port of 0 is any free one. Close ends what OpenDatabase has begun. ctx
// bounds the start only.
func OpenDatabase(ctx context.Context, dialect sqladapter.Dialect, address string,
	port int) (*Database, error) {
	s := &Database{Dialect: dialect, URL: address}
	switch {
	case address == Listed:
		return s, nil
	case dialect != sqladapter.SQLite && address != Private:
		return s, s.complete()
	}
	var err error
	s.Own = true
	if dialect == sqladapter.SQLite {
		if s.dir, err = os.MkdirTemp("", "onceward-bench"); err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
		const set = "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
		s.URL = "file:" + filepath.Join(s.dir, "bench.db") + set
		return s, nil
	}
	s.process, s.URL, err = start(ctx, kinds[dialect].script, port)
	if err == nil {
		err = s.complete()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// complete the address with what the workloads need of the driver: parameters in the text instead
// of a statement that is prepared for every call.
func (s *Database) complete() error {
	if s.Dialect != sqladapter.MySQL {
		return nil
	}
	cfg, err := mysql.ParseDSN(s.URL)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	cfg.InterpolateParams = true
	s.URL = cfg.FormatDSN()
	return nil
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
func (s *Database) CPU() func(context.Context) (time.Duration, error) { return cpuOf(s.pid) }

// Pool opens n connections at most, and keeps them.
func (s *Database) Pool(n int) (*sql.DB, error) {
	db, err := sql.Open(kinds[s.Dialect].driver, s.URL)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// Version of the server, a number.
func (s *Database) Version(ctx context.Context) (version string, err error) {
	db, err := s.Pool(1)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.QueryRowContext(ctx, kinds[s.Dialect].version).Scan(&version); err != nil {
		return "", fmt.Errorf("server: %v: %w", s.Dialect, err)
	}
	version, _, _ = strings.Cut(version, " ")
	version, _, _ = strings.Cut(version, "-")
	return version, nil
}
