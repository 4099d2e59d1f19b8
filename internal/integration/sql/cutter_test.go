package sql_test

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// cut is what happens to one COMMIT and to its connection, which ends with it.
type cut int

const (
	// lost: the server has executed it, and its reply gets lost.
	lost cut = iota
	// torn: so has it, and of the reply some bytes arrive.
	torn
	// late: the client's connection ends first, and COMMIT comes to the server afterwards.
	late
	// undelivered: the server never gets it.
	undelivered
)

func (c cut) String() string { return [...]string{"lost", "torn", "late", "undelivered"}[c] }

// lateness is time for the client to come back on another connection.
const lateness = 20 * time.Millisecond

// cutter stands between a client and a database. Once armed, it cuts the next COMMIT.
type cutter struct {
	addr, upstream string
	wire           func() wire
	armed          atomic.Pointer[order]
	count          atomic.Int64
}

// order is a cut, and how many bytes of the reply a torn one lets through, modulo its length:
// all of them never.
type order struct {
	how   cut
	bytes int
}

func newCutter(t *testing.T, upstream string, wire func() wire) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: l.Addr().String(), upstream: upstream, wire: wire}
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

// newPostgresCutter also returns the URL that leads through the cutter.
func newPostgresCutter(t *testing.T, postgres string) (c *cutter, through string) {
	t.Helper()
	u, err := url.Parse(postgres)
	if err != nil {
		t.Fatal(err)
	}
	c = newCutter(t, u.Host, newPostgresWire)
	u.Host = c.addr
	q := u.Query()
	q.Set("sslmode", "disable") // the cutter reads what is sent
	u.RawQuery = q.Encode()
	return c, u.String()
}

func (c *cutter) arm(o order) { c.armed.Store(&o) }

func (c *cutter) cuts() int64 { return c.count.Load() }

// wantCuts waits for the COMMITs that were cut. What has come late is counted when the server has
// answered it: that may be after its client has gone on.
func (c *cutter) wantCuts(t *testing.T, n int64) {
	t.Helper()
	poll(t, fmt.Sprint(n, " COMMITs to be cut"), func() bool { return c.cuts() >= n })
	if got := c.cuts(); got > n {
		t.Errorf("%d COMMITs were cut, want %d", got, n)
	}
}

// line is one connection through the cutter.
type line struct {
	*cutter
	wire           wire
	client, server net.Conn
	cutting        chan order // what happens to the replies from now on
}

func (c *cutter) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", c.upstream)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	l := &line{cutter: c, wire: c.wire(), client: client, server: server,
		cutting: make(chan order, 1)}
	var wg sync.WaitGroup
	wg.Go(l.replies)
	l.requests()
	wg.Wait()
}

// requests forwards what the client says up to the COMMIT that is cut.
func (l *line) requests() {
	r := bufio.NewReader(l.client)
	var now *order
	for {
		message, commits, answered, err := l.wire.request(r)
		if err != nil {
			_ = l.server.Close()
			return
		}
		if commits && now == nil {
			if now = l.armed.Swap(nil); now != nil && now.how == undelivered {
				l.count.Add(1)
				_, _ = l.client.Close(), l.server.Close()
				return
			}
		}
		if answered && now != nil {
			l.cut(*now, message)
			return
		}
		if _, err := l.server.Write(message); err != nil {
			_ = l.client.Close()
			return
		}
	}
}

// cut sends the last message of a COMMIT and leaves the rest to replies.
func (l *line) cut(o order, message []byte) {
	l.cutting <- o
	if o.how == late {
		_ = l.client.Close()
		<-time.After(lateness)
	}
	if _, err := l.server.Write(message); err != nil {
		_ = l.client.Close()
	}
}

// replies forwards what the server says until it has answered the COMMIT that is cut.
func (l *line) replies() {
	defer func() { _, _ = l.client.Close(), l.server.Close() }()
	r := bufio.NewReader(l.server)
	var held []byte
	var now *order
	for {
		message, ready, err := l.wire.reply(r)
		if err != nil {
			return
		}
		select {
		case o := <-l.cutting:
			now = &o
		default:
		}
		if now == nil {
			if _, err := l.client.Write(message); err != nil {
				return
			}
			continue
		}
		if held = append(held, message...); ready {
			if now.how == torn {
				_, _ = l.client.Write(held[:now.bytes%len(held)])
			}
			l.count.Add(1)
			return
		}
	}
}
