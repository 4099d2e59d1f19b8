// Package commitcut has a proxy in front of a database. The proxy cuts a COMMIT, so that the client
// does not learn its outcome.
package commitcut

import (
	"bufio"
	"context"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// How says what happens to one COMMIT and to its connection, which ends with it.
type How int

const (
	// Lost lets the server execute the COMMIT, and loses its reply.
	Lost How = iota
	// Torn does what Lost does, but some bytes of the reply arrive.
	Torn
	// Late ends the client's connection first, and passes COMMIT to the server afterwards.
	Late
	// Undelivered keeps COMMIT from the server.
	Undelivered
)

// String is the name in the logs of a test.
func (h How) String() string { return [...]string{"lost", "torn", "late", "undelivered"}[h] }

// Lateness is time for the client to come back on another connection.
const Lateness = 20 * time.Millisecond

// Proxy stands between a client and a database. Once armed, it cuts the next COMMIT.
type Proxy struct {
	addr, upstream string
	wire           func() wire
	armed          atomic.Pointer[Cut]
	count          atomic.Int64
}

// Cut is what happens to a COMMIT.
type Cut struct {
	// How it is cut.
	How How
	// Bytes is how many bytes of the reply Torn lets through, modulo the reply's length, so never
	// all of them.
	Bytes int
}

// Postgres starts a proxy for t in front of PostgreSQL, and returns the URL that leads through it.
func Postgres(t testing.TB, server string) (p *Proxy, through string) {
	t.Helper()
	u, err := url.Parse(server)
	require.NoError(t, err)
	p = start(t, u.Host, newPostgresWire)
	u.Host = p.addr
	q := u.Query()
	q.Set("sslmode", "disable") // the proxy reads the messages
	u.RawQuery = q.Encode()
	return p, u.String()
}

// MySQL starts a proxy for t in front of MySQL or MariaDB, and returns the data source name that
// leads through it.
func MySQL(t testing.TB, server string) (p *Proxy, through string) {
	t.Helper()
	cfg, err := mysql.ParseDSN(server)
	require.NoError(t, err)
	p = start(t, cfg.Addr, newMySQLWire)
	cfg.Addr, cfg.Net = p.addr, "tcp"
	return p, cfg.FormatDSN()
}

func start(t testing.TB, upstream string, wire func() wire) *Proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{addr: l.Addr().String(), upstream: upstream, wire: wire}
	var open sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); open.Wait() })
	open.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { p.serve(client) })
		}
	})
	return p
}

// Arm makes the proxy cut the next COMMIT.
func (p *Proxy) Arm(c Cut) { p.armed.Store(&c) }

// Cuts returns how many COMMITs were cut.
func (p *Proxy) Cuts() int64 { return p.count.Load() }

// WantCuts waits for the COMMITs that were cut. A late COMMIT is counted when the server has
// answered it, which may be after its client has continued.
func (p *Proxy) WantCuts(t testing.TB, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return p.Cuts() >= n }, time.Minute, 5*time.Millisecond,
		"%d COMMITs are cut", n)
	require.Equal(t, n, p.Cuts(), "COMMITs that were cut")
}

// line is one connection through the cutter.
type line struct {
	*Proxy
	wire           wire
	client, server net.Conn
	cutting        chan Cut // for the replies from now on
}

func (p *Proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.upstream)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	l := &line{Proxy: p, wire: p.wire(), client: client, server: server,
		cutting: make(chan Cut, 1)}
	var wg sync.WaitGroup
	wg.Go(l.replies)
	l.requests()
	wg.Wait()
}

// requests forwards the messages of the client up to the COMMIT that is cut.
func (l *line) requests() {
	r := bufio.NewReader(l.client)
	var now *Cut
	for {
		message, commits, answered, err := l.wire.request(r)
		if err != nil {
			_ = l.server.Close()
			return
		}
		if commits && now == nil {
			if now = l.armed.Swap(nil); now != nil && now.How == Undelivered {
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
func (l *line) cut(c Cut, message []byte) {
	l.cutting <- c
	if c.How == Late {
		_ = l.client.Close()
		<-time.After(Lateness)
	}
	if _, err := l.server.Write(message); err != nil {
		_ = l.client.Close()
	}
}

// replies forwards the messages of the server until it has answered the COMMIT that is cut.
func (l *line) replies() {
	defer func() { _, _ = l.client.Close(), l.server.Close() }()
	r := bufio.NewReader(l.server)
	var held []byte
	var now *Cut
	for {
		message, ready, err := l.wire.reply(r)
		if err != nil {
			return
		}
		select {
		case c := <-l.cutting:
			now = &c
		default:
		}
		if now == nil {
			if _, err := l.client.Write(message); err != nil {
				return
			}
			continue
		}
		if held = append(held, message...); ready {
			if now.How == Torn {
				_, _ = l.client.Write(held[:now.Bytes%len(held)])
			}
			l.count.Add(1)
			return
		}
	}
}
