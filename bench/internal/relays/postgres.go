// Package relays measures how fast messages get from a table of PostgreSQL to a publisher: by
// the relay of package outbox, by the recipe that most articles have, and by nothing but reading.
package relays

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// Private starts a PostgreSQL of its own, with settings that lose nothing, by scripts/servers.sh.
const Private = "private"

// Postgres is where everything is measured.
type Postgres struct {
	DB   *sql.DB
	URL  string
	Kind string // for people
	stop func() error
}

// Open starts a server, or connects to the one at a postgres:// URL.
func Open(ctx context.Context, which string) (*Postgres, error) {
	p := &Postgres{URL: which, stop: func() error { return nil }}
	if which == Private {
		if err := p.start(ctx); err != nil {
			return nil, err
		}
	}
	db, err := sql.Open("pgx", p.URL)
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	p.DB = db
	db.SetMaxIdleConns(64)
	var version, fsync, commit string
	err = db.QueryRowContext(ctx, `SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit')`).
		Scan(&version, &fsync, &commit)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	version, _, _ = strings.Cut(version, " ")
	p.Kind = fmt.Sprintf("PostgreSQL %s on loopback, fsync %s, synchronous_commit %s", version, fsync, commit)
	return p, nil
}

func (p *Postgres) start(ctx context.Context) error {
	const script = "../scripts/servers.sh"
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "onceward-bench")
	if err != nil {
		return err
	}
	// The server's own user must get in.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	home := filepath.Join(dir, "server")
	out, err := exec.CommandContext(ctx, script, "private", "postgres", home, strconv.Itoa(port)).Output()
	p.stop = func() error {
		down := exec.Command(script, "private-down", home) //nolint:noctx // also after an interrupt
		return errors.Join(down.Run(), os.RemoveAll(dir))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s private postgres: %w (from the folder bench; or name a server with -postgres)", script, err), p.stop())
	}
	p.URL = strings.TrimSpace(string(out))
	return nil
}

// Close stops the server if Open has started it.
func (p *Postgres) Close() error { return errors.Join(p.DB.Close(), p.stop()) }

func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("relays: %v is no TCP address", l.Addr())
	}
	return addr.Port, nil
}
