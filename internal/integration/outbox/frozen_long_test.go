//go:build long

package outbox_test

import (
	"context"
	"database/sql"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
)

// machine is the host that connections come from. After its death nothing is sent on them, not even
// that they are closed.
type machine struct {
	dead chan struct{} // closed when it has died
	end  chan struct{} // closed at the end of the test
}

func (m *machine) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &wire{conn, m}, err
}

type wire struct {
	net.Conn
	m *machine
}

func (w *wire) alive() bool {
	select {
	case <-w.m.dead:
		return false
	default:
		return true
	}
}

func (w *wire) Write(b []byte) (int, error) {
	if !w.alive() {
		<-w.m.end
		return 0, net.ErrClosed
	}
	return w.Conn.Write(b)
}

func (w *wire) Close() error {
	if !w.alive() {
		<-w.m.end
	}
	return w.Conn.Close()
}

// A relay's machine dies while it publishes, and tells the server nothing. Its shard is free again
// when the server has waited for as long as a relay may be silent, not for the two hours of TCP.
func TestMachineDies(t *testing.T) {
	h := newHouse(t, postgres())
	m := &machine{dead: make(chan struct{}), end: make(chan struct{})}
	cfg, err := pgx.ParseConfig(h.dsn)
	require.NoError(t, err)
	cfg.DialFunc = m.dial
	db := sql.OpenDB(stdlib.GetConnector(*cfg))
	doomed := newBroker()
	doomed.before = func(context.Context, []outbox.Message) error {
		close(m.dead)
		<-m.end
		return errDown
	}
	h.insert(t, numbered("a", 0))
	r := h.relay(t, doomed, func(c *outbox.RelayConfig) {
		c.DB, c.PublishTimeout = db, time.Second
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	t.Cleanup(func() { close(m.end); cancel(); <-ended; _ = db.Close() })
	<-m.dead
	began := time.Now()
	b := newBroker()
	start(t, h.relay(t, b))
	b.wait(t, 1)
	took := time.Since(began)
	assert.GreaterOrEqual(t, took, 4*time.Second)
	assert.LessOrEqual(t, took, 20*time.Second)
}
