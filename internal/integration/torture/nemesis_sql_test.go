package torture_test

import (
	"bytes"
	"database/sql"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/internal/servertest"
)

// cutCommits cuts some of the COMMITs of all workers: they are not delivered, delivered and not
// answered, or delivered after the client has gone.
func cutCommits(c *conductor, _ *servers, _ int) []*nemesis {
	c.cfg.Cut = 50
	return nil
}

// cuts counts the cut COMMITs of this process.
var cuts atomic.Int64

// cut decides whether a COMMIT is cut, and how. The connection of a cut COMMIT always ends.
func (c *commitConn) cut(b []byte) (n int, done bool, err error) {
	if c.w.cfg.Cut == 0 || rand.IntN(1000) >= c.w.cfg.Cut {
		return 0, false, nil
	}
	how := (c.w.cfg.Child + int(cuts.Add(1))) % 3 // each kind has its turn, in small runs too
	c.w.ledger.write(record{kind: cutting, code: uint8(how)})
	switch how {
	case 0: // undelivered
		_ = c.Conn.Close()
		return 0, true, net.ErrClosed
	case 1: // executed, most likely, and its reply is lost
		n, _ = c.Conn.Write(b)
		<-time.After(time.Duration(rand.IntN(3000)) * time.Microsecond)
		_ = c.Conn.Close()
		return n, true, nil
	}
	// The COMMIT reaches the server when the client already uses another connection, and has reused
	// the buffer.
	late := bytes.Clone(b)
	go func() {
		<-time.After(time.Duration(rand.IntN(20)) * time.Millisecond)
		_, _ = c.Conn.Write(late)
		_, _ = io.CopyN(io.Discard, c.Conn, 1)
		_ = c.Conn.Close()
	}()
	c.gone.Store(true)
	return 0, true, net.ErrClosed
}

// killBackends ends the workers' sessions during their work.
func killBackends(c *conductor, _ *servers, times int) []*nemesis {
	e := onPostgres
	if c.cfg.MariaDB != "" {
		e = onMariaDB
	}
	db := c.open(e)
	return []*nemesis{{
		// a worker notices it when it uses the connection next
		name: "backends killed", code: strikeOutage, times: times, echo: 2 * time.Second,
		begin: func(c *conductor) {
			if e.dialect == onPostgres.dialect {
				_, err := db.ExecContext(c.t.Context(),
					`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND pid <> pg_backend_pid()`, c.cfg.Prefix)
				c.must(err)
				return
			}
			for _, id := range c.sessions(db) {
				_, _ = db.ExecContext(c.t.Context(), "KILL ?", id) // the session may have ended
			}
		},
	}}
}

// sessions returns the sessions of MariaDB that work for the row.
func (c *conductor) sessions(db *sql.DB) (ids []int64) {
	rows, err := db.QueryContext(c.t.Context(),
		`SELECT id FROM information_schema.processlist WHERE info LIKE ? AND id <> CONNECTION_ID()`,
		"%"+c.cfg.Prefix+"%")
	c.must(err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		c.must(rows.Scan(&id))
		ids = append(ids, id)
	}
	c.must(rows.Err())
	return ids
}

// restartPostgres ends the row's own server at once, with all its backends, and starts it again.
func restartPostgres(c *conductor, s *servers, times int) []*nemesis {
	return []*nemesis{{
		name: "killed", code: strikeOutage, times: times,
		begin: func(c *conductor) {
			if c.rng.IntN(2) == 0 {
				s.postgres.Kill(1)
			} else {
				s.postgres.Quit(1)
			}
		},
		end: func(*conductor) { s.postgres.Start(1) },
	}}
}

// ownPostgres starts a server for one row.
func (c *conductor) ownPostgres(s *servers) string {
	c.t.Helper()
	kind := servertest.KindPostgres
	if c.row.clock {
		kind = servertest.KindPostgresClock
	}
	s.postgres = servertest.Private(c.t, kind)
	return s.postgres.Addr
}

// withApplication names the workers' sessions in a URL.
func withApplication(url, name string) string {
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	return url + sep + "application_name=" + name
}
