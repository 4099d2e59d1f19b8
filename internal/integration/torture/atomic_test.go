package torture_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter"
)

// engine is a database in which effect and record are one transaction.
type engine struct {
	name    string
	version string // a query
	dialect sqladapter.Dialect
	insert  string // of an effect, into a table
	db      func(w *worker) (*sql.DB, error)
}

var (
	onPostgres = engine{
		"postgres", `SHOW server_version`, sqladapter.Postgres,
		`INSERT INTO %s (message, child, run) VALUES ($1, $2, $3)`, openPostgres,
	}
	onMariaDB = engine{"mariadb", `SELECT version()`, sqladapter.MySQL,
		`INSERT INTO %s (message, child, run) VALUES (?, ?, ?)`, openMariaDB}
)

// sinkOf returns the name of the table in which each row is an effect.
func sinkOf(prefix string) string { return prefix + "_sink" }

func openPostgres(w *worker) (*sql.DB, error) {
	return openPostgresIn(w, pgx.QueryExecModeCacheStatement)
}

func openPostgresIn(w *worker, mode pgx.QueryExecMode) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(withApplication(w.cfg.Postgres, w.cfg.Prefix))
	if err != nil {
		return nil, err
	}
	cfg.DefaultQueryExecMode = mode
	inner := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return w.commits(inner(ctx, network, addr))
	}
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(16)
	return db, nil
}

func openMariaDB(w *worker) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(w.cfg.MariaDB)
	if err != nil {
		return nil, err
	}
	var dial net.Dialer
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return w.commits(dial.DialContext(ctx, network, addr))
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(16)
	return db, nil
}

// doomed is the delivery whose fate comes with the next COMMIT of the process, even if that is the
// COMMIT of another delivery.
var doomed atomic.Pointer[delivery]

// commitConn is a connection on which a COMMIT can end the process or the connection.
type commitConn struct {
	net.Conn
	w    *worker
	gone atomic.Bool // the client has been told that it is closed
}

func (w *worker) commits(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &commitConn{Conn: c, w: w}, nil
}

// Write kills the process in the middle of a COMMIT or after it, if a delivery is doomed.
func (c *commitConn) Write(b []byte) (int, error) {
	if at := bytes.Index(bytes.ToLower(b), []byte("commit")); at >= 0 {
		if d := doomed.Load(); d != nil {
			if d.fate == markTorn {
				_, _ = c.Conn.Write(b[:at+rand.IntN(len("commit"))])
			} else {
				_, _ = c.Conn.Write(b)
				// the server has more or less time to execute it
				<-time.After(time.Duration(rand.IntN(1000)) * time.Microsecond)
			}
			c.w.die(d)
		}
		if n, done, err := c.cut(b); done {
			return n, err
		}
	}
	return c.Conn.Write(b)
}

// Close leaves the connection open if a COMMIT is still under way on it.
func (c *commitConn) Close() error {
	if c.gone.Load() {
		return nil
	}
	return c.Conn.Close()
}

// inTransaction is level Atomic.
func inTransaction(e engine) func(context.Context, *worker) (handle,
	func(context.Context) error, error) {
	return func(_ context.Context, w *worker) (handle, func(context.Context) error, error) {
		db, err := e.db(w)
		if err != nil {
			return nil, nil, err
		}
		marks, err := sqladapter.New(sqladapter.Config{Dialect: e.dialect, Namespace: namespace,
			Table: w.cfg.Prefix, Window: window})
		if err != nil {
			return nil, nil, err
		}
		insert := fmt.Sprintf(e.insert, sinkOf(w.cfg.Prefix))
		h := func(ctx context.Context, m *delivery) error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			call := record{kind: called, op: opMark, run: w.ledger.next(), message: m.message,
				delivery: m.number}
			w.ledger.write(call)
			mark, err := marks.Do(ctx, db, m.key(), func(ctx context.Context, tx *sql.Tx) error {
				w.at(m, claimUnread)
				if m.fate == closing {
					cancel()
					defer w.die(m)
				}
				return w.effect(m, func(run uint64) error {
					_, err := tx.ExecContext(ctx, insert, m.message, w.cfg.Child, int64(run))
					if m.fate == markUnread || m.fate == markTorn {
						doomed.Store(m)
					}
					return err
				})
			})
			call.kind, call.at, call.flags = answered, 0, bit(m.ran.Load(), flagRan)
			switch {
			case err != nil:
				call.code = saidUnknown
			case mark.Outcome == dedup.Duplicate:
				call.code = saidDuplicate
			case mark.First():
				call.code = saidAcquired
			}
			w.ledger.write(call)
			return err
		}
		return h, func(context.Context) error { return db.Close() }, nil
	}
}
