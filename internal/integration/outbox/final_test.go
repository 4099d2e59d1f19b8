package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
)

// badTopic is a broker that refuses the topic "bad".
func badTopic() *broker {
	b := newBroker()
	b.before = func(_ context.Context, messages []outbox.Message) error {
		if messages[0].Topic == "bad" {
			return errDown
		}
		return nil
	}
	return b
}

// leaves waits until a relay leaves out the topic "bad".
func leaves(t *testing.T, r *outbox.Relay) {
	t.Helper()
	eventually(t, "the topic is left out", func() bool { return len(r.Failing()) > 0 })
}

// A message with a small id that is committed late is not overtaken by a later one of its key. If
// the relay took the backlog of another topic for final while a transaction that inserts is open,
// it would have done so by then.
func TestLateCommitBehindABacklog(t *testing.T) {
	for _, tt := range []struct {
		name string
		e    engine
	}{{"postgres", postgres()}, {"mariadb", mariadb()}, {"view of locks is empty", shadowed()}} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t, tt.e)
			late, err := h.db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = late.Rollback() }()
			require.NoError(t, h.box.InsertTx(t.Context(), late, numbered("k", 0)))
			testLateCommit(t, h, late.Commit)
		})
	}
}

// shadowed is a server whose pg_locks has no rows, as that of CockroachDB.
func shadowed() engine {
	e := postgres()
	dsn := e.dsn
	e.dsn = func(t *testing.T) string {
		schema := servertest.Prefix(t)
		db := openDB(t, "pgx", dsn(t))
		for _, text := range []string{
			`CREATE SCHEMA ` + schema,
			`CREATE VIEW ` + schema + `.pg_locks AS SELECT * FROM pg_catalog.pg_locks WHERE false`,
		} {
			_, err := db.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		t.Cleanup(func() {
			_, err := db.ExecContext(context.Background(), `DROP SCHEMA `+schema+` CASCADE`)
			assert.NoError(t, err)
		})
		return dsn(t) + "&search_path=" + schema + ",pg_catalog"
	}
	return e
}

// testLateCommit has message 0 of key "k" committed by the function, when relays have had the time
// to take a backlog for final.
func testLateCommit(t *testing.T, h *house, commit func() error) {
	t.Helper()
	insertMany(t, h, "bad", 500)
	b := badTopic()
	r := h.relay(t, b)
	start(t, r)
	leaves(t, r)
	sent := 0
	for began := time.Now(); time.Since(began) < 5*time.Second; sent++ {
		h.insert(t, numbered(fmt.Sprint("other", sent), 0))
		h.box.Notify()
		b.wait(t, sent+1)
	}
	require.NoError(t, commit())
	h.insert(t, numbered("k", 1))
	h.box.Notify()
	got := b.wait(t, sent+2)[sent:]
	assert.Equal(t, []string{"k/0", "k/1"}, []string{got[0].ID, got[1].ID})
}

// The same with a transaction that is prepared, which belongs to no session.
func TestPreparedBehindABacklog(t *testing.T) {
	t.Parallel()
	server := servertest.Private(t, servertest.KindPostgres)
	settings := openDB(t, "pgx", server.Addr)
	_, err := settings.ExecContext(t.Context(), `ALTER SYSTEM SET max_prepared_transactions = 5`)
	require.NoError(t, err)
	server.Kill(1)
	server.Start(1)
	h := newHouseAt(t, postgres(), server.Addr)
	conn, err := h.db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	exec := func(text string) {
		_, err := conn.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	exec(`BEGIN`)
	require.NoError(t, h.box.InsertTx(t.Context(), conn, numbered("k", 0)))
	exec(`PREPARE TRANSACTION 'late'`)
	testLateCommit(t, h, func() error {
		_, err := conn.ExecContext(t.Context(), `COMMIT PREPARED 'late'`)
		return err
	})
}

// The backlog of a topic that fails is read a few times, and not for each message behind it. For a
// user who may not see the locks, the backlog is read for each message, and the messages are
// published.
func TestBacklogIsNotReadForEachMessage(t *testing.T) {
	const backlog, each = 10_000, 300
	const many = each / 16 * backlog // a shard for each
	assert.Less(t, rowsRead(t, newHouse(t, postgres()), backlog, each), int64(many/2))
	server := servertest.Private(t, servertest.KindPostgres)
	h := newHouseAt(t, postgres(), server.Addr)
	h.exec(t, `REVOKE ALL ON pg_locks FROM PUBLIC`)
	h.exec(t, `CREATE ROLE plain LOGIN`)
	h.exec(t, `GRANT ALL ON ALL TABLES IN SCHEMA public TO plain`)
	plain := *h
	plain.dsn += "&user=plain"
	assert.Greater(t, rowsRead(t, &plain, backlog, each), int64(many))
}

// rowsRead publishes one message after the other behind a backlog of a topic that fails. It returns
// how many rows the relay has read for that, by the server's own count.
func rowsRead(t *testing.T, h *house, backlog, each int) (n int64) {
	t.Helper()
	insertMany(t, h, "bad", backlog)
	db, err := sql.Open("pgx", h.dsn+"&application_name="+h.table)
	require.NoError(t, err)
	b := badTopic()
	r := h.relay(t, b, func(c *outbox.RelayConfig) {
		c.DB, c.RetryMin, c.RetryMax = db, outbox.DefaultRetryMin, outbox.DefaultRetryMax
		c.BatchSize = 100
	})
	stop := start(t, r)
	leaves(t, r)
	for i := range each {
		h.insert(t, numbered(fmt.Sprint("k", i), 0))
		h.box.Notify()
		b.wait(t, i+1)
	}
	stop()
	require.NoError(t, db.Close())
	eventually(t, "the relay's sessions have ended, and have told what they had read", func() bool {
		var sessions int
		require.NoError(t, h.db.QueryRowContext(t.Context(),
			`SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`,
			h.table).Scan(&sessions))
		return sessions == 0
	})
	require.NoError(t, h.db.QueryRowContext(t.Context(),
		`SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE relname = $1`, h.table).Scan(&n))
	t.Logf("%d rows read", n)
	return n
}
