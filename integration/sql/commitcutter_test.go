package sql_test

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// commitMessage is a Query message of PostgreSQL's protocol, as pgx sends it.
var commitMessage = []byte("Q\x00\x00\x00\x0bcommit\x00")

// commitCutter stands between a client and PostgreSQL. Once armed, it lets the next
// COMMIT through and closes the connection in place of the reply.
type commitCutter struct {
	url      string
	upstream string
	count    atomic.Int64
	armed    atomic.Bool
}

func newCommitCutter(t *testing.T, postgres string) *commitCutter {
	t.Helper()
	u, err := url.Parse(postgres)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &commitCutter{upstream: u.Host}
	u.Host = l.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable") // the cutter reads what is sent
	u.RawQuery = q.Encode()
	c.url = u.String()
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { c.serve(client) })
		}
	})
	return c
}

func (c *commitCutter) arm() { c.armed.Store(true) }

func (c *commitCutter) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", c.upstream)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var committing atomic.Bool
	go func() {
		// Ends when either side is closed, at the latest with serve.
		defer func() { _ = server.Close() }()
		buf := make([]byte, 64<<10)
		for {
			n, err := client.Read(buf)
			if bytes.Contains(buf[:n], commitMessage) && c.armed.CompareAndSwap(true, false) {
				committing.Store(true)
			}
			if _, werr := server.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	}()
	c.replies(client, server, &committing)
}

// replies forwards what the server says until it has answered the armed COMMIT.
func (c *commitCutter) replies(client io.Writer, server io.Reader, committing *atomic.Bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if committing.Load() {
			c.count.Add(1)
			return
		}
		if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}
