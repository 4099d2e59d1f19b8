package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/integration/internal/commitcut"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// A wireFault is what happens to one request of a client, or to its reply. The connection ends with
// it. A request is all that the client sends until it waits for the server.
type wireFault int

const (
	requestUnsent wireFault = iota // the server gets nothing of it
	requestHalf                    // the server gets the first half
	requestLate                    // the client closes its connection, then the server gets it
	replyLost                      // the server has replied, and the client gets nothing of that
	replyTorn                      // the client gets the first half of the reply
)

var wireFaults = []wireFault{requestUnsent, requestHalf, requestLate, replyLost, replyTorn}

func (f wireFault) String() string {
	return [...]string{"unsent", "half sent", "late", "reply lost", "reply torn"}[f]
}

// wireProxy stands between a client and a database, and counts the requests of all connections. It
// assumes that one read returns a whole request, or a whole reply.
type wireProxy struct {
	addr, upstream string

	mu    sync.Mutex
	seen  int
	at    int // the request that is hit; 0 for none
	fault wireFault
	then  func()
	fired bool
}

func newWireProxy(t *testing.T, upstream string) *wireProxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &wireProxy{addr: l.Addr().String(), upstream: upstream}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(client) })
		}
	})
	return p
}

// arm has a fault come to the request of that number from now. then is called when all of it has
// happened.
func (p *wireProxy) arm(at int, fault wireFault, then func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.at, p.fault, p.then, p.fired = 0, at, fault, then, false
}

// counted returns how many requests there were, and whether one was hit.
func (p *wireProxy) counted() (seen int, fired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen, p.fired
}

// next counts a request, and reports whether it is the one to hit.
func (p *wireProxy) next() (hit bool, fault wireFault, then func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	hit = p.seen == p.at
	p.fired = p.fired || hit
	return hit, p.fault, p.then
}

// talk is one connection.
type talk struct {
	client, server net.Conn

	mu      sync.Mutex
	waiting bool      // the client has said something, and the server nothing since
	fault   wireFault // of the reply that is to come: replyLost, replyTorn, or 0 for none
	then    func()
}

func (p *wireProxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	k := &talk{client: client, server: server}
	var wg sync.WaitGroup
	wg.Go(k.replies)
	k.requests(p)
	_ = server.Close()
	wg.Wait()
}

func (k *talk) requests(p *wireProxy) {
	for buf := make([]byte, 64<<10); ; {
		n, err := k.client.Read(buf)
		if err != nil {
			return
		}
		said := buf[:n]
		k.mu.Lock()
		begins := !k.waiting
		k.waiting = true
		k.mu.Unlock()
		if begins && !commitcut.Cancels(said) && !goodbye(said) { // about earlier ones
			if hit, fault, then := p.next(); hit {
				k.hit(said, fault, then)
				return
			}
		}
		if _, err := k.server.Write(said); err != nil {
			return
		}
	}
}

// goodbye reports whether a client ends its connection: Terminate of PostgreSQL, COM_QUIT of MySQL.
// It may arrive after the next message has begun.
func goodbye(said []byte) bool {
	return string(said) == "X\x00\x00\x00\x04" || string(said) == "\x01\x00\x00\x00\x01"
}

// hit has the fault happen, as far as it is one of the request, and waits for the end of the
// connection.
func (k *talk) hit(said []byte, fault wireFault, then func()) {
	switch fault {
	case requestUnsent:
	case requestHalf:
		_, _ = k.server.Write(said[:len(said)/2])
	case requestLate:
		_ = k.client.Close()
		<-time.After(commitcut.Lateness)
		_, _ = k.server.Write(said)
	case replyLost, replyTorn:
		k.mu.Lock()
		k.fault, k.then = fault, then
		k.mu.Unlock()
		_, _ = k.server.Write(said)
		// nothing answers MySQL's closing of a statement
		_ = k.client.SetReadDeadline(time.Now().Add(5 * commitcut.Lateness))
		_, _ = io.Copy(io.Discard, k.client)
		if !k.takes() { // the reply has come, and its fault comes too
			return
		}
	}
	then()
	_ = k.client.Close()
}

// takes reports whether the fault of a reply has not happened yet. If so, the caller has to cause
// it.
func (k *talk) takes() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() { k.fault = 0 }()
	return k.fault != 0
}

func (k *talk) replies() {
	for buf := make([]byte, 64<<10); ; {
		n, err := k.server.Read(buf)
		if err != nil {
			_ = k.client.Close()
			return
		}
		said := buf[:n]
		k.mu.Lock()
		k.waiting = false
		fault, then := k.fault, k.then
		k.fault = 0
		k.mu.Unlock()
		if fault == replyTorn {
			_, _ = k.client.Write(said[:n/2])
		}
		if fault == replyLost || fault == replyTorn {
			then()
			_ = k.client.Close()
			return
		}
		if _, err := k.client.Write(said); err != nil {
			return
		}
	}
}

// nothing happens besides the fault.
func nothing() {}

// allMethods are the methods that have an effect once, Runner's included.
var allMethods = append([]method{{"Runner", 1, (*shop).byRunner}}, methods...)

func (s *shop) byRunner(ctx context.Context, batch []string) (first bool, err error) {
	r, err := s.marks.Runner(s.db)
	if err != nil {
		return false, err
	}
	res, err := r.Run(ctx, batch[0], func(ctx context.Context) ([]byte, bool, error) {
		tx, _ := sqladapter.TxFrom(ctx)
		return []byte("receipt"), false, s.effect(ctx, tx, batch[0])
	})
	return res.Outcome == dedup.Acquired, err
}

// everyRoundTrip hits each request of a message's life with each fault, delivers the message until
// that succeeds, and checks its effects.
func (s *shop) everyRoundTrip(t *testing.T, p *wireProxy, open func() *sql.DB, w method,
	faults []wireFault, then func()) {
	t.Helper()
	var all []string
	life := func(at int, fault wireFault, then func()) (roundTrips int) {
		batch := make([]string, w.size)
		for i := range batch {
			batch[i] = fmt.Sprintf("%s %d %v %d", w.name, at, fault, i)
		}
		all = append(all, batch...)
		db := open()
		defer func() { _ = db.Close() }()
		through := *s
		through.db = db
		over := make(chan struct{})
		p.arm(at, fault, func() { defer close(over); then() })
		for range 10 * maxDeliveries {
			if _, err := w.do(&through, t.Context(), batch); err == nil {
				roundTrips, fired := p.counted()
				switch {
				case fired:
					<-over
				case at > 0:
					t.Errorf("round trip %d has not come", at)
				}
				return roundTrips
			}
			<-time.After(5 * time.Millisecond)
		}
		t.Errorf("round trip %d, %v: no delivery ends well", at, fault)
		return 0
	}
	roundTrips := life(0, 0, nothing)
	for range 4 { // on a busy machine one request may come in two parts, which count as two
		roundTrips = min(roundTrips, life(0, 0, nothing))
	}
	require.GreaterOrEqual(t, roundTrips, 4)
	for _, fault := range faults {
		for at := 1; at <= roundTrips; at++ {
			life(at, fault, then)
		}
	}
	lost, doubled := s.damage(t, all)
	assert.Zero(t, lost, "of %d effects", len(all))
	assert.Zero(t, doubled, "of %d effects", len(all))
	t.Logf("%d round trips, %d faults: %d effects, each once", roundTrips, roundTrips*len(faults),
		len(all))
}

// throughWireProxy leads to an engine through a proxy.
func throughWireProxy(t *testing.T, e engine, mode, server string) (*wireProxy, func() *sql.DB) {
	t.Helper()
	driver, dsn := "pgx", ""
	var p *wireProxy
	if e.dialect == sqladapter.MySQL {
		direct, err := mysql.ParseDSN(server)
		require.NoError(t, err)
		p = newWireProxy(t, direct.Addr)
		driver, dsn = "mysql", mariadbDSN(t, server, func(cfg *mysql.Config) { cfg.Addr = p.addr })
	} else {
		u, err := url.Parse(server)
		require.NoError(t, err)
		p = newWireProxy(t, u.Host)
		u.Host = p.addr
		q := u.Query()
		q.Set("sslmode", "disable")
		u.RawQuery = q.Encode()
		dsn = postgresURL(t, u.String(), mode)
	}
	return p, func() *sql.DB {
		db, err := sql.Open(driver, dsn)
		require.NoError(t, err)
		return db
	}
}

// TestEveryRoundTripOnTheWire: whatever happens to whichever request of a message's life, from the
// connection to the COMMIT, it has its effect once.
func TestEveryRoundTripOnTheWire(t *testing.T) {
	for _, mode := range append([]string{"mariadb"}, pgxModes...) {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e, server := mariadb(), servertest.MariaDB
			if mode != "mariadb" {
				e, server = postgres(mode), servertest.Postgres
			}
			s := newShop(t, e)
			p, open := throughWireProxy(t, e, mode, server(t))
			for _, w := range allMethods {
				t.Run(w.name, func(t *testing.T) {
					s.everyRoundTrip(t, p, open, w, wireFaults, nothing)
				})
			}
		})
	}
}

// TestKilledServerAtEveryRoundTrip: all processes of PostgreSQL are killed before or after each
// request of a message's life, and the server is started again.
func TestKilledServerAtEveryRoundTrip(t *testing.T) {
	t.Parallel()
	server := servertest.Private(t, servertest.KindPostgres)
	base := server.Addr
	e := engine{name: "postgres", dialect: sqladapter.Postgres, open: func(t *testing.T) *sql.DB {
		return openDB(t, "pgx", postgresURL(t, base, "exec"))
	}}
	s := newShop(t, e)
	p, open := throughWireProxy(t, e, "exec", base)
	s.everyRoundTrip(t, p, open, allMethods[0], []wireFault{requestUnsent, replyLost}, func() {
		server.Kill(1)
		server.Start(1)
	})
}
