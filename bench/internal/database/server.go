// Package database gives the benchmarks a PostgreSQL and a MariaDB: processes of their own,
// or those that are named; and an SQLite file.
package database

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // registers pgx
	_ "modernc.org/sqlite"             // registers sqlite

	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/sqladapter"
)

// Private is the address of a server that [Open] is to start.
const Private = "private"

// Server is a running database.
type Server struct {
	Dialect sqladapter.Dialect
	// URL for pgx, or the data source name of the others.
	URL string
	// Own says that nobody else uses it.
	Own bool

	pid int    // of the server's first process; 0: unknown, or there is none
	dir string // of the private server, or of SQLite's file; empty: not ours
}

// Larger than the servers of the tests have them: what is compared is what a transaction
// costs, not how often a small cache or a small log has to be emptied. Durability is as
// shipped: every commit waits for the disk.
var options = []string{
	"ONCEWARD_POSTGRES_OPTIONS=-c shared_buffers=512MB -c max_wal_size=4GB -c checkpoint_timeout=30min",
	"ONCEWARD_MARIADB_OPTIONS=--innodb-buffer-pool-size=512M --innodb-log-file-size=1G",
}

// kinds of server that scripts/servers.sh knows.
var kinds = map[sqladapter.Dialect]string{sqladapter.Postgres: "postgres", sqladapter.MySQL: "mariadb"}

// Open starts a server of this dialect on loopback, with scripts/servers.sh, or connects to
// one: address is [Private], or what the driver takes. SQLite is a file in a new folder,
// whatever the address. A port of 0 is any free one. Close ends what Open has begun. ctx bounds the start only.
func Open(ctx context.Context, dialect sqladapter.Dialect, address string, port int) (*Server, error) {
	switch {
	case dialect == sqladapter.SQLite:
		return sqlite()
	case address == Private:
		return private(ctx, dialect, port)
	}
	s := &Server{Dialect: dialect, URL: address}
	return s, s.complete()
}

func sqlite() (*Server, error) {
	dir, err := os.MkdirTemp("", "onceward-bench")
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	const set = "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	return &Server{Dialect: sqladapter.SQLite, URL: "file:" + filepath.Join(dir, "bench.db") + set, Own: true, dir: dir}, nil
}

func private(ctx context.Context, dialect sqladapter.Dialect, port int) (*Server, error) {
	if port == 0 {
		free, err := server.FreePort(ctx)
		if err != nil {
			return nil, err
		}
		port = free
	}
	dir, err := os.MkdirTemp("", "onceward-bench")
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // servers give up root's rights
		return nil, errors.Join(fmt.Errorf("database: %w", err), os.RemoveAll(dir))
	}
	s := &Server{Dialect: dialect, Own: true, dir: dir}
	s.URL, err = script(ctx, "private", kinds[dialect], filepath.Join(dir, "server"), strconv.Itoa(port))
	if err == nil {
		s.pid, err = s.readPID()
	}
	if err == nil {
		err = s.complete()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// complete the address with what the workloads need of the driver: parameters in the text in
// place of a statement that is prepared for every call.
func (s *Server) complete() error {
	if s.Dialect != sqladapter.MySQL {
		return nil
	}
	cfg, err := mysql.ParseDSN(s.URL)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	cfg.InterpolateParams = true
	s.URL = cfg.FormatDSN()
	return nil
}

func (s *Server) readPID() (int, error) {
	data, err := os.ReadFile(filepath.Join(s.dir, "server", "1", "pid"))
	if err != nil {
		return 0, fmt.Errorf("database: %w", err)
	}
	pid, _, _ := strings.Cut(string(data), " ")
	return strconv.Atoi(pid)
}

// Close stops the server if Open has started it, and removes its files.
func (s *Server) Close() error {
	if s.dir == "" {
		return nil
	}
	var err error
	if s.pid != 0 {
		// Not the caller's context: it may have ended, and the server must end as well.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err = script(ctx, "private-down", filepath.Join(s.dir, "server"))
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Pool opens n connections at most, and keeps them.
func (s *Server) Pool(n int) (*sql.DB, error) {
	driver := map[sqladapter.Dialect]string{sqladapter.Postgres: "pgx", sqladapter.MySQL: "mysql", sqladapter.SQLite: "sqlite"}[s.Dialect]
	db, err := sql.Open(driver, s.URL)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// Version of the server, a number.
func (s *Server) Version(ctx context.Context) (version string, err error) {
	db, err := s.Pool(1)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ask := map[sqladapter.Dialect]string{
		sqladapter.Postgres: `SHOW server_version`, sqladapter.MySQL: `SELECT version()`, sqladapter.SQLite: `SELECT sqlite_version()`,
	}[s.Dialect]
	if err := db.QueryRowContext(ctx, ask).Scan(&version); err != nil {
		return "", fmt.Errorf("database: %v: %w", s.Dialect, err)
	}
	version, _, _ = strings.Cut(version, " ")
	version, _, _ = strings.Cut(version, "-")
	return version, nil
}

func script(ctx context.Context, args ...string) (string, error) {
	file, err := scriptFile()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, file, args...)
	cmd.Env = append(os.Environ(), options...)
	var out, told bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &told
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("database: servers.sh %s: %w\n%s", strings.Join(args, " "), err, told.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// scriptFile lies in the repository that this runs in.
func scriptFile() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("database: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		file := filepath.Join(dir, "scripts", "servers.sh")
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("database: no scripts/servers.sh above this folder: name a server, or go into the repository")
		}
	}
}
