package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/outbox"
)

// holdSnapshot opens a transaction that keeps the database from removing what is deleted from now
// on. It returns the name of its session.
func (h *house) holdSnapshot(t *testing.T) string {
	t.Helper()
	tx, err := h.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	var name string
	var n int
	ask := `SELECT pg_backend_pid()::text, count(*) FROM ` + h.table
	if h.e.dialect == outbox.MySQL {
		ask = `SELECT CONNECTION_ID(), count(*) FROM ` + h.table
	}
	require.NoError(t, tx.QueryRowContext(t.Context(), ask).Scan(&name, &n))
	return name
}

// deadRows is how many messages were published since the snapshot: so many that a poll is costly.
const deadRows = 20_000

// Many messages were published since a transaction began that is still open. A relay that begins
// then reads each of their dead rows a few times, and not with each poll or message.
func TestDeadRowsAreNotReadAgain(t *testing.T) {
	h := newHouse(t, postgres())
	h.holdSnapshot(t)
	for i := range deadRows / 5000 {
		insertMany(t, h, fmt.Sprint("t", i), 5000)
	}
	b := newBroker()
	h.readBy(t, b, func() { b.wait(t, deadRows) })
	const each = 200
	read := h.readBy(t, b, func() {
		for i := range each {
			h.insert(t, numbered(fmt.Sprint("k", i), 0))
			h.box.Notify()
			b.wait(t, deadRows+i+1)
		}
	})
	t.Logf("%d entries read for %d messages behind %d dead rows", read, each, deadRows)
	assert.Less(t, read, int64(each*deadRows/4), "at most a pass for four messages")
}

// readBy returns how many entries of the primary key were read while a relay ran.
func (h *house) readBy(t *testing.T, b *broker, during func()) int64 {
	t.Helper()
	before := h.entriesRead(t)
	db, err := sql.Open("pgx", h.dsn+"&application_name="+h.table)
	require.NoError(t, err)
	stop := start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
		c.DB, c.PollMax = db, 10*time.Millisecond
	}))
	during()
	stop()
	require.NoError(t, db.Close())
	eventually(t, "the relay's sessions have ended, and have told what they had read", func() bool {
		var sessions int
		require.NoError(t, h.db.QueryRowContext(t.Context(),
			`SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`,
			h.table).Scan(&sessions))
		return sessions == 0
	})
	return h.entriesRead(t) - before
}

// entriesRead is the server's own count, of sessions that have ended or are idle.
func (h *house) entriesRead(t *testing.T) (n int64) {
	t.Helper()
	require.NoError(t, h.db.QueryRowContext(t.Context(),
		`SELECT idx_tup_read FROM pg_stat_user_indexes WHERE relname = $1 AND indexrelname = $2`,
		h.table, h.table+"_pkey").Scan(&n))
	return n
}

// Lag of a pool that a relay uses begins behind the dead rows; it still counts all messages that
// wait.
func TestLagBehindDeadRows(t *testing.T) {
	h := newHouse(t, postgres())
	h.holdSnapshot(t)
	for i := range deadRows / 5000 {
		insertMany(t, h, fmt.Sprint("t", i), 5000)
	}
	b := badTopic()
	stop := start(t, h.relay(t, b))
	b.wait(t, deadRows)
	h.drained(t) // the last batch is deleted after it was published
	other, err := outbox.New(outbox.Config{Dialect: h.e.dialect, Table: h.table})
	require.NoError(t, err)
	eventually(t, "Lag reads no dead rows", func() bool {
		with, without := h.timeLag(t, h.box, 0), h.timeLag(t, other, 0)
		t.Logf("%v behind the dead rows, %v from the beginning", with, without)
		return with < without/3
	})
	insertMany(t, h, "bad", 40)
	h.timeLag(t, h.box, 40)
	stop()
	h.timeLag(t, h.box, 40)
}

// timeLag returns the shortest time of some calls.
func (h *house) timeLag(t *testing.T, box *outbox.Outbox, pending int) time.Duration {
	t.Helper()
	shortest := patience
	for range 5 {
		began := time.Now()
		lag, err := box.Lag(t.Context(), h.db)
		shortest = min(shortest, time.Since(began))
		require.NoError(t, err)
		assert.Equal(t, pending, lag.Pending)
	}
	return shortest
}

// oldestIs waits until OldestSnapshot names a session. It asks seldom: InnoDB renews what it shows
// only when nobody, in any test, has read that for 100 ms.
func (h *house) oldestIs(t *testing.T, name string) (found outbox.Snapshot) {
	t.Helper()
	eventually(t, "the transaction is the oldest one", func() bool {
		require.NoError(t, backoff.Sleep(t.Context(), 200*time.Millisecond+
			rand.N(300*time.Millisecond)))
		var err error
		found, err = h.box.OldestSnapshot(t.Context(), h.db)
		require.NoError(t, err)
		return found.Name == name
	})
	return found
}

// The transaction that makes polls slow is named.
func TestOldestSnapshot(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		name := h.holdSnapshot(t)
		found, err := h.box.OldestSnapshot(t.Context(), h.db)
		require.NoError(t, err)
		assert.Equal(t, "session", found.Kind)
		found = h.oldestIs(t, name)
		assert.Less(t, found.Age, patience)
		assert.NotEmpty(t, found.User)
		if e.dialect == outbox.Postgres {
			assert.Equal(t, "idle in transaction", found.State)
			assert.Contains(t, found.Query, h.table)
		}
	})
	lite := newHouse(t, sqlite())
	found, err := lite.box.OldestSnapshot(t.Context(), lite.db)
	require.NoError(t, err)
	assert.Zero(t, found)
}

// The transaction is named while a statement runs whose bytes are not UTF-8. MySQL does not show
// innodb_trx then.
func TestOldestSnapshotNextToBytes(t *testing.T) {
	h := newHouse(t, mariadb())
	name := h.holdSnapshot(t)
	own, err := h.db.Conn(t.Context())
	require.NoError(t, err)
	_, err = own.ExecContext(t.Context(), `DO GET_LOCK(?, 0)`, h.table)
	require.NoError(t, err)
	began := h.table + "_began"
	var bytes sync.WaitGroup
	bytes.Go(func() {
		_, err := h.db.ExecContext(t.Context(), `DO GET_LOCK(?, 0), GET_LOCK(?, 60), ?`, began,
			h.table, []byte{0x96, 0xff})
		assert.NoError(t, err)
	})
	eventually(t, "the statement runs", func() bool {
		var used bool
		require.NoError(t, h.db.QueryRowContext(t.Context(), `SELECT IS_USED_LOCK(?) IS NOT NULL`,
			began).Scan(&used))
		return used
	})
	h.oldestIs(t, name)
	_, err = own.ExecContext(t.Context(), `DO RELEASE_LOCK(?)`, h.table)
	require.NoError(t, err)
	require.NoError(t, own.Close())
	bytes.Wait()
}

// Prevents: OldestSnapshot names an older transaction in another database of the server. That one
// keeps no rows of this database, and hides the one that does.
func TestOldestSnapshotOfThisDatabase(t *testing.T) {
	h := newHouse(t, postgres())
	at, err := url.Parse(h.dsn)
	require.NoError(t, err)
	at.Path = "/postgres"
	tx, err := openDB(t, "pgx", at.String()).BeginTx(t.Context(),
		&sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	var other string
	require.NoError(t, tx.QueryRowContext(t.Context(),
		`SELECT pg_backend_pid()::text FROM pg_class LIMIT 1`).Scan(&other))
	h.exec(t, `CREATE TABLE `+h.table+`_xid AS SELECT 1`) // the next snapshot is a newer one
	h.exec(t, `DROP TABLE `+h.table+`_xid`)
	name := h.holdSnapshot(t)
	eventually(t, "the transaction of this database is the oldest one", func() bool {
		found, err := h.box.OldestSnapshot(t.Context(), h.db)
		require.NoError(t, err)
		require.NotEqual(t, other, found.Name)
		return found.Name == name
	})
}

// Under an old snapshot, with writers that commit late and relays that are killed: no message is
// lost, and none is reordered.
func TestOrderUnderAnOldSnapshot(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		h.holdSnapshot(t)
		insertMany(t, h, "t", 20_000)
		b := newBroker()
		for range 2 {
			start(t, h.relay(t, b, func(c *outbox.RelayConfig) { c.BatchSize = 100 }))
		}
		const keys, each = 6, 60
		committed := map[string]int{}
		var writers sync.WaitGroup
		for key := range keys {
			name := fmt.Sprint("k", key)
			committed[name] = each
			writers.Go(func() {
				for i := range each {
					h.insertLate(t, numbered(name, i), time.Duration(i%7)*time.Millisecond)
				}
			})
		}
		writers.Wait()
		h.drained(t)
		got, _ := b.got()
		var own []outbox.Message
		for _, m := range got {
			if strings.HasPrefix(m.ID, "k") {
				own = append(own, m)
			}
		}
		assert.Equal(t, tally{}, judge(own, committed))
		assert.Len(t, got, 20_000+keys*each)
	})
}

// insertLate commits a while after the insert.
func (h *house) insertLate(t *testing.T, m outbox.Message, wait time.Duration) {
	t.Helper()
	err := h.insertIn(t.Context(), func() { <-time.After(wait) }, m)
	if !errors.Is(err, context.Canceled) {
		assert.NoError(t, err)
	}
}
