package outbox_test

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
)

// cut is what happens to one COMMIT; its connection ends with it.
type cut int32

const (
	uncut       cut = iota
	undelivered     // the server never gets it
	unanswered      // the server has executed it, and its answer gets lost
	late            // the client's connection ends before the server gets it
)

// cutter is a proxy in front of a database that cuts one COMMIT when it is armed.
type cutter struct {
	upstream string
	armed    atomic.Int32
	cuts     atomic.Int64
}

// newCutter returns a proxy, and the data source name of a database that leads through it.
func newCutter(t *testing.T, e engine, dsn string) (c *cutter, through string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c = &cutter{}
	if e.dialect == outbox.MySQL {
		cfg, err := mysql.ParseDSN(dsn)
		require.NoError(t, err)
		c.upstream, cfg.Addr, cfg.Net = cfg.Addr, l.Addr().String(), "tcp"
		through = cfg.FormatDSN()
	} else {
		u, err := url.Parse(dsn)
		require.NoError(t, err)
		c.upstream, u.Host = u.Host, l.Addr().String()
		q := u.Query()
		q.Set("sslmode", "disable") // what is sent is looked at
		u.RawQuery = q.Encode()
		through = u.String()
	}
	var open sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); open.Wait() })
	open.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { c.serve(client) })
		}
	})
	return c, through
}

func (c *cutter) serve(client net.Conn) {
	server, err := net.Dial("tcp", c.upstream)
	if err != nil {
		_ = client.Close()
		return
	}
	var cutting atomic.Bool
	var both sync.WaitGroup
	both.Go(func() { c.answers(client, server, &cutting) })
	c.requests(client, server, &cutting)
	both.Wait()
}

// requests passes on what the client sends. A driver sends COMMIT in one write.
func (c *cutter) requests(client, server net.Conn, cutting *atomic.Bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			if !cutting.Load() {
				_ = server.Close()
			}
			return
		}
		how := uncut
		if n < 100 && bytes.Contains(bytes.ToLower(buffer[:n]), []byte("commit")) {
			how = cut(c.armed.Swap(int32(uncut)))
		}
		cutting.Store(how != uncut)
		if how != uncut {
			c.cuts.Add(1)
		}
		if how == undelivered || how == late {
			_ = client.Close()
		}
		if how == undelivered {
			_ = server.Close()
			return
		}
		if how == late { // time for the client to come back on another connection
			<-time.After(20 * time.Millisecond)
		}
		if _, err := server.Write(buffer[:n]); err != nil || how == late {
			return
		}
	}
}

// answers passes on what the server sends, but for the answer to what was cut.
func (c *cutter) answers(client, server net.Conn, cutting *atomic.Bool) {
	defer func() { _, _ = client.Close(), server.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil || cutting.Load() {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// COMMIT is lost, or its answer is: the record, the effect and the message are there once.
func TestDoWithAmbiguousCommit(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		c, through := newCutter(t, e, s.dsn)
		db := openDB(t, e.driver, through)
		b := newBroker()
		start(t, s.relay(t, b))
		const rounds = 60
		committed := map[string]int{}
		for i := range rounds {
			how := []cut{undelivered, unanswered, late}[i%3]
			name := fmt.Sprint("k", i%5)
			committed[name]++
			c.armed.Store(int32(how))
			for try := 0; ; try++ {
				_, err := s.do(t.Context(), db, name, i/5)
				if err == nil {
					break
				}
				t.Logf("round %d, try %d: %v", i, try, err)
				require.Less(t, try, 20)
			}
		}
		require.Equal(t, int64(rounds), c.cuts.Load(), "COMMITs that were cut")
		s.wantOnce(t, b, committed)
	})
}
