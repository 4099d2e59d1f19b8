package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
)

// On a pool with autocommit off, a read outside of a transaction has left one open on each
// connection. A transaction with an isolation level then fails on that connection forever, unless
// the relay ends the open one.
func TestConnectionsLeftInATransaction(t *testing.T) {
	h := newHouse(t, mariadb())
	other := *h
	other.db = openDB(t, "mysql", h.dsn+"&autocommit=0")
	other.db.SetMaxOpenConns(2)
	poison := func() {
		var held []*sql.Conn
		for range 2 {
			conn, err := other.db.Conn(t.Context())
			require.NoError(t, err)
			var n int
			require.NoError(t, conn.QueryRowContext(t.Context(),
				`SELECT count(*) FROM `+h.table).Scan(&n))
			held = append(held, conn)
		}
		for _, conn := range held {
			require.NoError(t, conn.Close())
		}
	}
	h.insert(t, numbered("a", 0))
	poison()
	lag, err := h.box.Lag(t.Context(), other.db)
	require.NoError(t, err)
	assert.EqualValues(t, 1, lag.Pending)
	poison()
	list, err := h.box.Parked(t.Context(), other.db, 0, 1)
	require.NoError(t, err)
	assert.Len(t, list, 0)
	poison()
	n, err := h.box.Requeue(t.Context(), other.db, 1)
	require.NoError(t, err)
	assert.Zero(t, n)
	poison()
	b := newBroker()
	start(t, other.relay(t, b, func(c *outbox.RelayConfig) {
		c.Workers, c.OnError = 1, func(err error) { t.Errorf("relay: %v", err) }
	}))
	h.drained(t)
	b.wait(t, 1)
}

// A relay that cannot write, as on a read replica, publishes nothing, rather than the same
// messages forever.
func TestReadOnly(t *testing.T) {
	for _, tt := range []struct {
		e    engine
		more string
	}{
		{postgres(), "&default_transaction_read_only=on"},
		{mariadb(), servertest.SessionVariable("read_only", "1")},
	} {
		t.Run(tt.e.name, func(t *testing.T) {
			h := newHouse(t, tt.e)
			h.insert(t, numbered("a", 0))
			b := newBroker()
			told := make(chan error, 1000)
			stop := start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
				c.DB = openDB(t, tt.e.driver, h.dsn+tt.more)
				c.OnError = func(err error) { told <- err }
			}))
			for range 5 {
				t.Log(<-told)
			}
			stop()
			got, _ := b.got()
			assert.Empty(t, got)
		})
	}
}

// A transaction that has inserted and does not end holds up no relay. In MySQL a deletion that
// searches the table would wait for its rows.
func TestOpenTransactionsHoldNobodyUp(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) {
		for _, n := range []int{1, 3, 40, 600, 1500} {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				h := newHouse(t, e)
				open, err := h.db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				defer func() { _ = open.Rollback() }()
				require.NoError(t, h.box.InsertTx(t.Context(), open, numbered("a", 0)))
				var many []outbox.Message
				for i := range n {
					many = append(many, outbox.Message{ID: fmt.Sprint("b/", i), Topic: "other",
						Key: []byte("a")})
				}
				h.insert(t, many...)
				require.NoError(t, h.box.InsertTx(t.Context(), open, numbered("a", 1)))
				b := newBroker()
				b.fail = failsOnce("b/0")
				var told atomic.Int64
				start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
					c.OnError = func(err error) {
						told.Add(1)
						assert.ErrorIs(t, err, errDown)
					}
				}))
				began := time.Now()
				h.drained(t)
				// a wait for a lock of open would take longer
				took := time.Since(began)
				assert.LessOrEqual(t, took, 30*time.Second)
				got, _ := b.got()
				tl := judge(got, map[string]int{"b": n})
				assert.Equal(t, tally{}, tl)
			})
		}
	})
}

// The server ends sessions that are idle in a transaction for too long: a relay sets its own limit,
// which is longer than a publish may take, and which still ends the session when the relay's
// machine has died.
func TestIdleLimitOfTheServer(t *testing.T) {
	h := newHouse(t, postgres())
	strict := openDB(t, "pgx", h.dsn+"&idle_in_transaction_session_timeout=20")
	b := newBroker()
	b.before = func(context.Context, []outbox.Message) error {
		slow := time.NewTimer(100 * time.Millisecond)
		<-slow.C
		b.before = nil
		return nil
	}
	h.insert(t, numbered("a", 0))
	// On a slow machine it may lose a transaction in which it has not asked for its own limit yet.
	start(t, h.relay(t, b, func(c *outbox.RelayConfig) { c.DB = strict }))
	h.drained(t)
	got, _ := b.got()
	assert.Len(t, got, 1)
}

// The one writer of SQLite is busy when a batch has been published, and the pool does not wait for
// it: that is not a reason to publish the batch again.
func TestBusyWriter(t *testing.T) {
	h := newHouse(t, sqlite())
	h.insert(t, numbered("a", 0), numbered("a", 1))
	hasty := openDB(t, "sqlite",
		strings.Replace(h.dsn, "busy_timeout(60000)", "busy_timeout(0)", 1))
	b := newBroker()
	release := make(chan struct{})
	b.before = func(ctx context.Context, _ []outbox.Message) error {
		tx, err := h.db.BeginTx(context.WithoutCancel(ctx), nil) // immediate: it is the writer now
		if err != nil {
			return err
		}
		go func() { <-release; _ = tx.Rollback() }()
		timer := time.AfterFunc(150*time.Millisecond, func() { close(release) })
		t.Cleanup(func() { timer.Stop() })
		b.before = nil
		return nil
	}
	start(t, h.relay(t, b, func(c *outbox.RelayConfig) { c.DB = hasty }))
	h.drained(t)
	got, _ := b.got()
	tl := judge(got, map[string]int{"a": 2})
	assert.Equal(t, tally{}, tl)
}
