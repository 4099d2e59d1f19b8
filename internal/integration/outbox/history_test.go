package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/outbox"
)

// withHistory makes a house keep its published messages.
func (h *house) withHistory(t *testing.T, history time.Duration) {
	t.Helper()
	box, err := outbox.New(outbox.Config{Dialect: h.e.dialect, Table: h.table, History: history})
	require.NoError(t, err)
	h.box = box
}

// Published messages are kept as they were, in the order of publishing. Without History none is
// kept.
func TestHistory(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		stop := start(t, h.relay(t, b))
		h.insert(t, numbered("a", 0))
		h.drained(t)
		stop()
		list, err := h.box.Published(t.Context(), h.db, 0, 10)
		require.NoError(t, err)
		assert.Empty(t, list)
		h.withHistory(t, time.Hour)
		h.insert(t, outbox.Message{ID: "first", Topic: "t", Key: []byte("a"),
			Headers: []outbox.Header{{Key: "x", Value: []byte("1")}}},
			numbered("a", 1), numbered("a", 2))
		start(t, h.relay(t, b))
		h.drained(t)
		list, err = h.box.Published(t.Context(), h.db, 0, 2)
		require.NoError(t, err)
		require.Len(t, list, 2)
		first := list[0]
		assert.Equal(t, outbox.Message{ID: "first", Topic: "t", Key: []byte("a"),
			Headers: []outbox.Header{{Key: "x", Value: []byte("1")}}}, first.Message)
		assert.Zero(t, first.Attempts)
		assert.WithinDuration(t, time.Now(), first.Created, patience)
		assert.False(t, first.At.Before(first.Created))
		list, err = h.box.Published(t.Context(), h.db, list[1].Row, 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.Equal(t, "a/2", list[0].ID)
	})
}

// Messages that are older than History are deleted, and no others.
func TestHistoryIsSwept(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		h.withHistory(t, time.Hour)
		b := newBroker()
		stop := start(t, h.relay(t, b))
		insertMany(t, h, "t", 2500)
		h.drained(t)
		stop()
		old := map[outbox.Dialect]string{
			outbox.Postgres: "published_at - interval '50 minutes'",
			outbox.MySQL:    "published_at - INTERVAL 50 MINUTE",
			outbox.SQLite:   "published_at - 3000000",
		}[e.dialect]
		h.exec(t, `UPDATE `+h.table+`_published SET published_at = `+old)
		h.withHistory(t, 40*time.Minute) // its first sweep is in a minute
		h.insert(t, numbered("young", 0))
		stop = start(t, h.relay(t, b))
		h.drained(t)
		list, err := h.box.Published(t.Context(), h.db, 0, 5000)
		require.NoError(t, err)
		assert.Len(t, list, 2501)
		stop()
		h.exec(t, `UPDATE `+h.table+`_published SET published_at = `+old+
			` WHERE dedup_id <> 'young/0'`)
		h.exec(t, `UPDATE `+h.table+`_published SET published_at = `+
			map[outbox.Dialect]string{
				outbox.Postgres: "published_at + interval '15 seconds'",
				outbox.MySQL:    "published_at + INTERVAL 15 SECOND",
				outbox.SQLite:   "published_at + 15000",
			}[e.dialect]+` WHERE dedup_id = 'young/0'`)
		h.withHistory(t, 20*time.Second)
		start(t, h.relay(t, b))
		eventually(t, "what is old is deleted", func() bool {
			list, err = h.box.Published(t.Context(), h.db, 0, 5000)
			require.NoError(t, err)
			return len(list) <= 1
		})
		require.Len(t, list, 1)
		assert.Equal(t, "young/0", list[0].ID)
	})
}

// Prevents: the clock was ahead when a message was published, and all later messages are kept until
// that time.
func TestHistoryFromTheFuture(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		h.withHistory(t, time.Hour)
		b := newBroker()
		stop := start(t, h.relay(t, b))
		h.insert(t, numbered("a", 0))
		b.wait(t, 1)
		h.drained(t)
		stop()
		ahead := map[outbox.Dialect]string{
			outbox.Postgres: "published_at + interval '1 year'",
			outbox.MySQL:    "published_at + INTERVAL 1 YEAR",
			outbox.SQLite:   "published_at + 31536000000",
		}
		h.exec(t, `UPDATE `+h.table+`_published SET published_at = `+ahead[e.dialect])
		h.withHistory(t, time.Second)
		start(t, h.relay(t, b))
		h.insert(t, numbered("a", 1))
		b.wait(t, 2)
		eventually(t, "nothing is kept", func() bool {
			list, err := h.box.Published(t.Context(), h.db, 0, 10)
			require.NoError(t, err)
			return len(list) == 0
		})
	})
}
