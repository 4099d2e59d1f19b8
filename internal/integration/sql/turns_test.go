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

// A turn is what a client says until it waits for the server. turnFault is what happens to one and
// to its connection, which ends with it.
type turnFault int

const (
	turnUnsent turnFault = iota // the server gets nothing of it
	turnHalf                    // the server gets the first half
	turnLate                    // the client's connection ends, and the server gets it afterwards
	turnLost                    // the server has replied, and the client gets nothing of that
	turnTorn                    // the client gets the first half of the reply
)

var turnFaults = []turnFault{turnUnsent, turnHalf, turnLate, turnLost, turnTorn}

func (f turnFault) String() string {
	return [...]string{"unsent", "half sent", "late", "reply lost", "reply torn"}[f]
}

// turns stands between a client and a database, and counts its turns over all connections. It
// takes what it reads at once for a whole turn, or a whole reply.
type turns struct {
	addr, upstream string

	mu    sync.Mutex
	seen  int
	at    int // the turn that is hit; 0 for none
	fault turnFault
	then  func()
	fired bool
}

func newTurns(t *testing.T, upstream string) *turns {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &turns{addr: l.Addr().String(), upstream: upstream}
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

// arm has a fault come to the turn of that number from now. then is called when all of it has
// happened.
func (p *turns) arm(at int, fault turnFault, then func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.at, p.fault, p.then, p.fired = 0, at, fault, then, false
}

// counted is how many turns there were, and whether one was hit.
func (p *turns) counted() (seen int, fired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen, p.fired
}

// next counts a turn, and reports whether it is the one.
func (p *turns) next() (hit bool, fault turnFault, then func()) {
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
	fault   turnFault // of the reply that is to come: turnLost, turnTorn, or 0 for none
	then    func()
}

func (p *turns) serve(client net.Conn) {
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

func (k *talk) requests(p *turns) {
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
		if begins && !commitcut.Cancels(said) && !goodbye(said) { // of what has gone before
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
// That of one life comes when the next may have begun.
func goodbye(said []byte) bool {
	return string(said) == "X\x00\x00\x00\x04" || string(said) == "\x01\x00\x00\x00\x01"
}

// hit has the fault happen, as far as it is one of the request, and waits for the end of the
// connection.
func (k *talk) hit(said []byte, fault turnFault, then func()) {
	switch fault {
	case turnUnsent:
	case turnHalf:
		_, _ = k.server.Write(said[:len(said)/2])
	case turnLate:
		_ = k.client.Close()
		<-time.After(commitcut.Lateness)
		_, _ = k.server.Write(said)
	case turnLost, turnTorn:
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

// takes reports whether the fault of a reply is still to come, and is now the caller's.
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
		if fault == turnTorn {
			_, _ = k.client.Write(said[:n/2])
		}
		if fault == turnLost || fault == turnTorn {
			then()
			_ = k.client.Close()
			return
		}
		if _, err := k.client.Write(said); err != nil {
			return
		}
	}
}

// nothing is all that happens beside a fault.
func nothing() {}

// lives are the ways to have an effect once, Runner among them.
var lives = append([]way{{"Runner", 1, (*shop).byRunner}}, ways...)

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

// everyTurn hits each turn of a message's life with each fault, has the message delivered until
// that ends well, and checks what it had.
func (s *shop) everyTurn(t *testing.T, p *turns, open func() *sql.DB, w way, faults []turnFault,
	then func()) {
	t.Helper()
	var all []string
	life := func(at int, fault turnFault, then func()) (turns int) {
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
				turns, fired := p.counted()
				switch {
				case fired:
					<-over
				case at > 0:
					t.Errorf("turn %d has not come", at)
				}
				return turns
			}
			<-time.After(5 * time.Millisecond)
		}
		t.Errorf("turn %d, %v: no delivery ends well", at, fault)
		return 0
	}
	turns := life(0, 0, nothing)
	for range 4 { // on a busy machine one request may come in two parts, which are two turns
		turns = min(turns, life(0, 0, nothing))
	}
	require.GreaterOrEqual(t, turns, 4)
	for _, fault := range faults {
		for at := 1; at <= turns; at++ {
			life(at, fault, then)
		}
	}
	lost, doubled := s.damage(t, all)
	assert.Zero(t, lost, "of %d effects", len(all))
	assert.Zero(t, doubled, "of %d effects", len(all))
	t.Logf("%d turns, %d faults: %d effects, each once", turns, turns*len(faults), len(all))
}

// throughTurns leads to an engine through a proxy.
func throughTurns(t *testing.T, e engine, mode, server string) (*turns, func() *sql.DB) {
	t.Helper()
	driver, dsn := "pgx", ""
	var p *turns
	if e.dialect == sqladapter.MySQL {
		direct, err := mysql.ParseDSN(server)
		require.NoError(t, err)
		p = newTurns(t, direct.Addr)
		driver, dsn = "mysql", mariadbDSN(t, server, func(cfg *mysql.Config) { cfg.Addr = p.addr })
	} else {
		u, err := url.Parse(server)
		require.NoError(t, err)
		p = newTurns(t, u.Host)
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

// TestEveryTurnOnTheWire: whatever happens to whichever request of a message's life, from the
// connection to the COMMIT, it has its effect once.
func TestEveryTurnOnTheWire(t *testing.T) {
	for _, mode := range append([]string{"mariadb"}, pgxModes...) {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e, server := mariadb(), servertest.MariaDB
			if mode != "mariadb" {
				e, server = postgres(mode), servertest.Postgres
			}
			s := newShop(t, e)
			p, open := throughTurns(t, e, mode, server(t))
			for _, w := range lives {
				t.Run(w.name, func(t *testing.T) {
					s.everyTurn(t, p, open, w, turnFaults, nothing)
				})
			}
		})
	}
}

// TestKilledServerAtEveryTurn: PostgreSQL is killed, all of it, before each request of a message's
// life and after it, and started again.
func TestKilledServerAtEveryTurn(t *testing.T) {
	t.Parallel()
	server := servertest.Private(t, servertest.KindPostgres)
	base := server.Addr
	e := engine{name: "postgres", dialect: sqladapter.Postgres, open: func(t *testing.T) *sql.DB {
		return openDB(t, "pgx", postgresURL(t, base, "exec"))
	}}
	s := newShop(t, e)
	p, open := throughTurns(t, e, "exec", base)
	s.everyTurn(t, p, open, lives[0], []turnFault{turnUnsent, turnLost}, func() {
		server.Kill(1)
		server.Start(1)
	})
}
