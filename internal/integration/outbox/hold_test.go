package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/outbox"
)

// later is SQL for the time in ms milliseconds.
func (h *house) later(ms int64) string {
	switch h.e.dialect {
	case outbox.Postgres:
		return fmt.Sprintf("clock_timestamp() + %d * interval '1 millisecond'", ms)
	case outbox.MySQL:
		return fmt.Sprintf("NOW(6) + INTERVAL %d * 1000 MICROSECOND", ms)
	default:
		return fmt.Sprintf("CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) + %d", ms)
	}
}

// hold lets a message wait, as one that has failed does.
func (h *house) hold(t *testing.T, id string, ms int64) {
	t.Helper()
	h.exec(t, `UPDATE `+h.table+` SET retry_at = `+h.later(ms)+` WHERE dedup_id = '`+id+`'`)
}

// The clock was years ahead when a message was put off, or RetryMax was years. A message waits no
// longer than this relay's own RetryMax.
func TestPutOffForYears(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		h.insert(t, numbered("a", 0), numbered("a", 1))
		h.hold(t, "a/0", int64(2*365*24*time.Hour/time.Millisecond))
		b := newBroker()
		start(t, h.relay(t, b))
		h.drained(t)
		tl := judge(b.wait(t, 2), map[string]int{"a": 2})
		assert.Equal(t, tally{}, tl)
	})
}

// The clock was years ahead when a relay that has died since took its lease.
func TestLeaseOfYears(t *testing.T) {
	h := newHouse(t, sqlite())
	h.exec(t, `UPDATE `+h.table+`_shards SET owner = 'gone', until = `+
		h.later(int64(2*365*24*time.Hour/time.Millisecond)))
	h.insert(t, numbered("a", 0))
	start(t, h.relay(t, newBroker()))
	h.drained(t)
}

// A message is always due, and fails each time. Behind it are more messages of its key than a batch
// takes. The other keys of its shard are still published.
func TestDueMessageHoldsUpItsKeyAlone(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		var fixed atomic.Bool
		b.fail = func(m outbox.Message) error {
			if m.ID == "a/0" && !fixed.Load() {
				return errDown
			}
			return nil
		}
		h.insert(t, numbered("a", 0), outbox.Message{ID: "c/0", Topic: "c", Key: []byte("a")})
		at := func(c *outbox.RelayConfig) {
			c.RetryMin, c.RetryMax = time.Millisecond, time.Millisecond
		}
		r := h.relay(t, b, few, at, func(c *outbox.RelayConfig) { c.OnError = func(error) {} })
		start(t, r)
		eventually(t, "it has failed by itself", func() bool {
			return r.Stats().Published == 1 && r.Stats().Failures > 1
		})
		var many []outbox.Message
		for i := range 40 {
			many = append(many, numbered("a", i+1))
		}
		// The same shard: another topic of the same key.
		h.insert(t, append(many, outbox.Message{ID: "other/0", Topic: "other",
			Key: []byte("a")})...)
		b.wait(t, 2)
		fixed.Store(true)
		h.drained(t)
		got, _ := b.got()
		tl := judge(got, map[string]int{"a": 41, "c": 1, "other": 1})
		assert.Equal(t, tally{}, tl)
	})
}

// backlog is so long that a search that compares each of its messages with each waiting one does
// not end in time. The same holds for a deletion that looks at each of them.
const backlog = 25_000

// Many waiting messages are at the head of a long backlog, in a table without statistics. The
// messages behind them are found, and deleted, in time.
func TestLongBacklogBehindMessagesThatWait(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		var head []outbox.Message
		for i := range 600 {
			head = append(head, numbered(fmt.Sprint("w", i), 0))
		}
		h.insert(t, head...)
		h.exec(t, `UPDATE `+h.table+` SET retry_at = `+h.later(3_600_000))
		// All of one shard, each with a key of its own.
		key, series, column := "convert_to('b' || i, 'UTF8')", "generate_series(1, %d) AS i", "key"
		if e.dialect == outbox.MySQL {
			key, series, column = "concat('b', seq)",
				"JSON_TABLE(concat('[1', repeat(',1', %d - 1), ']'), '$[*]' COLUMNS (seq FOR ORDINALITY)) AS s", "`key`"
		}
		h.exec(t, `INSERT INTO `+h.table+` (shard, topic, dedup_id, `+column+
			`, headers, payload) SELECT b.shard, 't', 'x', `+key+
			`, b.headers, b.payload FROM `+h.table+` AS b, `+fmt.Sprintf(series, backlog)+
			` WHERE b.dedup_id = 'w0/0'`)
		h.exec(t, `UPDATE `+h.table+` SET shard = (SELECT shard FROM (SELECT shard FROM `+
			h.table+` WHERE dedup_id = 'w0/0') AS one)`)
		b := newBroker()
		began := time.Now()
		start(t, h.relay(t, b, func(c *outbox.RelayConfig) { c.RetryMax = time.Hour }))
		b.wait(t, backlog)
		t.Logf("%v", time.Since(began))
		eventually(t, "all of them are deleted", func() bool {
			lag, err := h.box.Lag(t.Context(), h.db)
			return err == nil && lag.Pending == len(head)
		})
		got, _ := b.got()
		assert.Len(t, got, backlog)
		assert.False(t, slices.ContainsFunc(got, func(m outbox.Message) bool { return m.ID != "x" }), "%d were published, or one that waits", len(got))
	})
}

// A pool of one connection is enough, though slow: a relay needs no second one for any of its
// steps.
func TestOneConnection(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		narrow := openDB(t, e.driver, h.dsn)
		narrow.SetMaxOpenConns(1)
		b := newBroker()
		b.fail = failsOnce("k3/1")
		committed := map[string]int{}
		for i := range 30 {
			h.insert(t, numbered(fmt.Sprint("k", i), 0), numbered(fmt.Sprint("k", i), 1))
			committed[fmt.Sprint("k", i)] = 2
		}
		start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
			c.DB = narrow
			c.OnError = func(error) { // OnError may use the database
				_, err := h.box.Lag(context.Background(), narrow)
				assert.NoError(t, err)
			}
		}))
		h.drained(t)
		got, _ := b.got()
		tl := judge(got, committed)
		assert.Equal(t, tally{}, tl)
	})
}
