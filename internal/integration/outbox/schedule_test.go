package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
)

// scheduled is a message that is not to be published before a time.
func scheduled(key string, i int, at time.Time) outbox.Message {
	m := numbered(key, i)
	m.NotBefore = at
	return m
}

// released waits until no message is scheduled, and none is pending.
func (h *house) released(t *testing.T) {
	t.Helper()
	eventually(t, "no message is scheduled", func() bool {
		lag, err := h.box.Lag(t.Context(), h.db)
		return err == nil && lag.Scheduled == 0 && lag.Pending == 0
	})
}

// A message is published when its time has come, although the relay polls once in an hour. Until
// then it holds up no later message of its key. One that is rolled back never comes.
func TestNotBefore(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		early := make(chan string, 1)
		b.before = func(_ context.Context, messages []outbox.Message) error {
			for _, m := range messages {
				if at, err := time.Parse(time.RFC3339Nano, string(m.Payload)); err == nil &&
					time.Now().Before(at) || !m.NotBefore.IsZero() {
					early <- m.ID
				}
			}
			return nil
		}
		start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
			c.PollMin, c.PollMax = time.Hour, time.Hour
		}))
		h.insert(t, numbered("b", 0))
		h.box.Notify()
		b.wait(t, 1) // it has asked for scheduled messages: only a signal makes it ask again
		at := time.Now().Add(time.Second)
		later := scheduled("a", 2, at)
		later.Payload = []byte(at.Format(time.RFC3339Nano))
		tx, err := h.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, h.box.InsertTx(t.Context(), tx, scheduled("never", 0, at)))
		require.NoError(t, tx.Rollback())
		h.insert(t, later, numbered("a", 0))
		h.box.Notify()
		b.wait(t, 2)
		lag, err := h.box.Lag(t.Context(), h.db)
		require.NoError(t, err)
		assert.Equal(t, 1, lag.Scheduled)
		h.insert(t, numbered("a", 1))
		h.box.Notify()
		b.wait(t, 3)
		got := b.wait(t, 4)
		assert.Empty(t, early, "published too early")
		assert.Equal(t, tally{}, judge(got, map[string]int{"a": 3, "b": 1}))
		h.released(t)
	})
}

// Without a signal, and without a message that is due at once, a relay finds by its polls what
// another process has scheduled. Lag counts a message whose time is past as waiting.
func TestNotBeforeWithoutSignal(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		other, err := outbox.New(outbox.Config{Dialect: e.dialect, Table: h.table})
		require.NoError(t, err)
		b := newBroker()
		stop := start(t, h.relay(t, b))
		tx, err := h.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, other.InsertTx(t.Context(), tx,
			scheduled("a", 0, time.Now().Add(200*time.Millisecond))))
		require.NoError(t, tx.Commit())
		b.wait(t, 1)
		h.released(t)
		stop()
		h.insert(t, scheduled("a", 1, time.Now().Add(-time.Hour)))
		eventually(t, "the message has an age", func() bool {
			lag, err := h.box.Lag(t.Context(), h.db)
			require.NoError(t, err)
			assert.Equal(t, 1, lag.Scheduled)
			assert.Less(t, lag.Oldest, patience, "it waits since it was inserted")
			return lag.Oldest > 5*time.Millisecond
		})
		start(t, h.relay(t, b))
		b.wait(t, 2)
		h.released(t)
	})
}

// Several relays move what is due, in small batches. The messages of each key come in the order of
// their times; those of one time in the order in which they were inserted.
func TestNotBeforeKeepsOrder(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		const keys, each = 10, 40
		committed := map[string]int{}
		now := time.Now()
		var all []outbox.Message
		for k := range keys {
			committed[fmt.Sprint("k", k)] = each
			for i := range each { // two have the same time
				all = append(all, scheduled(fmt.Sprint("k", k), i,
					now.Add(time.Duration(i/2-each/4)*20*time.Millisecond)))
			}
		}
		// The order is random, except that of messages with the same time.
		rand.Shuffle(len(all)/2, func(i, j int) {
			i, j = 2*i, 2*j
			all[i], all[j] = all[j], all[i]
			all[i+1], all[j+1] = all[j+1], all[i+1]
		})
		b := newBroker()
		relays := 3
		if e.dialect == outbox.SQLite {
			relays = 1
		}
		for range relays {
			start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
				c.BatchSize, c.PollMin, c.PollMax = 7, time.Millisecond, 5*time.Millisecond
			}))
		}
		h.insert(t, all...)
		got := b.wait(t, len(all))
		h.released(t)
		assert.Equal(t, tally{}, judge(got, committed))
	})
}

// The COMMIT that moves messages is not answered. No message is lost, and none is there twice.
func TestNotBeforeWithLostCommits(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		l := &lossy{driver: h.db.Driver(), dsn: h.dsn}
		db := sql.OpenDB(l)
		t.Cleanup(func() { _ = db.Close() })
		now := time.Now()
		committed := map[string]int{}
		var all []outbox.Message
		for k := range 10 {
			committed[fmt.Sprint("k", k)] = 30
			for i := range 30 {
				all = append(all, scheduled(fmt.Sprint("k", k), i,
					now.Add(time.Duration(i)*10*time.Millisecond)))
			}
		}
		h.insert(t, all...)
		var lost atomic.Int64
		b := newBroker()
		start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
			c.DB, c.BatchSize, c.PollMax = db, 10, 10*time.Millisecond
			c.OnError = func(error) { lost.Add(1) }
		}))
		h.released(t)
		got, _ := b.got()
		tl := judge(got, committed)
		assert.Zero(t, tl.lost)
		assert.Zero(t, tl.inversions)
		assert.NotZero(t, lost.Load())
	})
}

// Prevents: more messages are due than can be moved in five seconds. The relay gave up in the
// middle, reported an error, and left the others for almost a minute.
func TestNotBeforeOfMany(t *testing.T) {
	t.Parallel()
	h := newHouse(t, sqlite())
	slow := sql.OpenDB(&lossy{driver: h.db.Driver(), dsn: h.dsn, takes: 100 * time.Millisecond})
	t.Cleanup(func() { _ = slow.Close() })
	const n = 120 // in 60 transactions
	at := time.Now()
	var all []outbox.Message
	for i := range n {
		all = append(all, scheduled("a", i, at))
	}
	h.insert(t, all...)
	var failures atomic.Int64
	b := newBroker()
	start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
		c.DB, c.BatchSize = slow, 2
		c.OnError = func(err error) {
			// On a busy machine a deletion may wait too long for the moves. It is not a fault here.
			if strings.Contains(err.Error(), "scheduled messages") {
				failures.Add(1)
			}
			t.Logf("relay: %v", err)
		}
	}))
	b.wait(t, 1)
	var left int
	require.NoError(t, h.db.QueryRowContext(t.Context(),
		`SELECT count(*) FROM `+h.table+`_scheduled`).Scan(&left))
	assert.NotZero(t, left, "nothing was published while messages were moved")
	h.released(t)
	got, _ := b.got()
	found := judge(got, map[string]int{"a": n})
	assert.Zero(t, found.lost)
	assert.Zero(t, found.inversions)
	assert.Zero(t, failures.Load(), "errors of moves")
}

// Prevents: a relay asks what is due between InsertTx and its COMMIT, finds nothing, and does not
// ask again at the Notify behind the COMMIT.
func TestNotBeforeInALongTransaction(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) { // SQLite's one writer would keep the relay out
		h := newHouse(t, e)
		b := newBroker()
		start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
			c.PollMin, c.PollMax = time.Hour, time.Hour
		}))
		other := openDB(t, e.driver, h.dsn)
		require.NoError(t, h.insertIn(t.Context(), func() {
			tx, err := other.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, h.box.InsertTx(t.Context(), tx, numbered("b", 0)))
			require.NoError(t, tx.Commit())
			h.box.Wake() // as for another process's message
			b.wait(t, 1) // the relay has polled
		}, scheduled("a", 0, time.Now())))
		h.box.Notify()
		b.wait(t, 2)
	})
}

// Prevents: a row of another program with a time before 1970, or an infinite one, is never moved.
// In PostgreSQL -infinity kept all others scheduled, and infinity made Lag fail.
func TestNotBeforeOfOddRows(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		past, future := "-5", "4000000000000000000"
		switch e.dialect {
		case outbox.Postgres:
			past, future = "'-infinity'", "'infinity'"
		case outbox.SQLite:
			future = "4000000000000000"
		}
		h := newHouse(t, e)
		at := time.Now().Add(time.Hour)
		h.insert(t, scheduled("past", 0, at), scheduled("future", 0, at))
		for id, time := range map[string]string{"past": past, "future": future} {
			h.exec(t, `UPDATE `+h.table+`_scheduled SET not_before = `+time+` WHERE dedup_id = ?`,
				scheduled(id, 0, at).ID)
		}
		b := newBroker()
		start(t, h.relay(t, b))
		h.insert(t, scheduled("good", 0, time.Now()))
		h.box.Notify()
		assert.Equal(t, tally{}, judge(b.wait(t, 2), map[string]int{"past": 1, "good": 1}))
		lag, err := h.box.Lag(t.Context(), h.db)
		require.NoError(t, err)
		assert.Equal(t, 1, lag.Scheduled)
	})
}
