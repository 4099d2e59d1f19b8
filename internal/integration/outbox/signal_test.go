package outbox_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/pgxlisten"
)

// elsewhere is the same outbox in another process: it shares nothing with h but the database.
func elsewhere(t *testing.T, h *house) *house {
	t.Helper()
	box, err := outbox.New(outbox.Config{Dialect: h.e.dialect, Table: h.table})
	require.NoError(t, err)
	other := *h
	other.box, other.db = box, openDB(t, h.e.driver, h.dsn)
	return &other
}

// background runs something until the end of the test.
func background(t *testing.T, run func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
}

// notifying runs a Notifier, which passes on the house's Notify.
func notifying(t *testing.T, h *house, every time.Duration) *outbox.Notifier {
	t.Helper()
	n, err := outbox.NewNotifier(outbox.NotifierConfig{
		Outbox: h.box, DB: h.db, Every: every, OnError: func(err error) {
			t.Logf("notifier: %v", err)
		},
	})
	require.NoError(t, err)
	background(t, n.Run)
	return n
}

// listening wakes the house's relays. connected gets a value for each connection.
func listening(t *testing.T, h *house, silence time.Duration) (connected <-chan struct{}) {
	t.Helper()
	made := make(chan struct{}, 100)
	l, err := pgxlisten.New(pgxlisten.Config{
		Outbox: h.box, Silence: silence,
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			conn, err := pgx.Connect(ctx, h.dsn+"&application_name="+h.table)
			if err == nil {
				made <- struct{}{}
			}
			return conn, err
		},
		OnError: func(err error) { t.Logf("listener: %v", err) },
	})
	require.NoError(t, err)
	background(t, l.Run)
	return made
}

// rarely makes a relay poll once in an hour, so that it needs signals.
func rarely(c *outbox.RelayConfig) { c.PollMin, c.PollMax = time.Hour, time.Hour }

// One process inserts, another publishes: a message is there within milliseconds although no relay
// polls, and the listener's connection may be killed meanwhile.
func TestSignalAcrossProcesses(t *testing.T) {
	here := newHouse(t, postgres())
	there := elsewhere(t, here)
	notifying(t, here, 0)
	// the listener checks its connection all the time, and must not take it for lost
	connected := listening(t, there, 50*time.Millisecond)
	b := newBroker()
	start(t, there.relay(t, b, rarely))
	<-connected
	listens := func() bool {
		var n int
		// Its first statement is LISTEN; the one that tries the connection comes after that.
		err := here.db.QueryRowContext(t.Context(),
			`SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`+
				` AND query <> '' AND state = 'idle'`, here.table).Scan(&n)
		return err == nil && n == 1
	}
	eventually(t, "it listens", listens)
	var took []time.Duration
	for i := range 20 {
		here.insert(t, numbered("a", i))
		committed := time.Now()
		here.box.Notify()
		b.wait(t, i+1)
		took = append(took, time.Since(committed))
	}
	slices.Sort(took)
	t.Logf("from the commit to the publisher: median %v, most %v", took[10], took[19])
	assert.Empty(t, connected)
	here.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '`+here.table+`'`)
	here.insert(t, numbered("a", 20))
	here.box.Notify() // no listener gets it
	eventually(t, "it has connected again", func() bool { return len(connected) > 0 })
	b.wait(t, 21)
	here.insert(t, numbered("a", 21))
	here.box.Notify()
	b.wait(t, 22)
}

// Many commits of many processes cause few notifications.
func TestNotificationsAreFew(t *testing.T) {
	h := newHouse(t, postgres())
	n := notifying(t, h, 20*time.Millisecond)
	conn, err := pgx.Connect(t.Context(), h.dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	_, err = conn.Exec(t.Context(),
		"LISTEN "+pgx.Identifier{h.box.Channel()}.Sanitize())
	require.NoError(t, err)
	began := time.Now()
	const commits = 300
	for i := range commits {
		h.insert(t, numbered("a", i))
		h.box.Notify()
	}
	took := time.Since(began)
	var heard atomic.Int64
	eventually(t, "the last one is heard", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return heard.Load() > 0 && heard.Load() == n.Sent()
			}
			heard.Add(1)
		}
	})
	most := int64(took/(20*time.Millisecond)) + 2
	assert.Positive(t, heard.Load())
	assert.LessOrEqual(t, heard.Load(), most)
}
