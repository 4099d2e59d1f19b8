package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
)

// produce runs 16 producers, each with keys of its own, whose transactions commit after random
// delays: rows become visible out of the order of their ids. It returns how many messages of
// each key were committed. Keys begin with prefix.
func (h *house) produce(t *testing.T, prefix string, each int) map[string]int {
	t.Helper()
	const producers, keys = 16, 5
	var mu sync.Mutex
	committed := map[string]int{}
	var wg sync.WaitGroup
	for p := range producers {
		rnd := rand.New(rand.NewPCG(1, uint64(p)))
		wg.Go(func() {
			next := [keys]int{}
			for made := 0; made < each; {
				var messages []outbox.Message
				for range 1 + rnd.IntN(5) {
					k := rnd.IntN(keys)
					messages = append(messages,
						numbered(fmt.Sprintf("%sp%d-k%d", prefix, p, k), next[k]))
					next[k]++
				}
				delay := time.NewTimer(time.Duration(rnd.IntN(3000)) * time.Microsecond)
				if !assert.NoError(t,
					h.insertIn(t.Context(), func() { <-delay.C }, messages...)) {
					return
				}
				if made += len(messages); rnd.IntN(2) == 0 {
					h.box.Notify()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for k, n := range next {
				committed[fmt.Sprintf("%sp%d-k%d", prefix, p, k)] = n
			}
		})
	}
	wg.Wait()
	return committed
}

// Four relays, and producers that commit out of order: nothing is lost, nothing comes twice and
// no key is out of order.
func TestFourRelays(t *testing.T) {
	forEachServer(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		for range 4 {
			start(t, h.relay(t, b, func(c *outbox.RelayConfig) { c.BatchSize, c.Workers = 20, 2 }))
		}
		committed := h.produce(t, "", 250)
		h.drained(t)
		got, _ := b.got()
		tl := judge(got, committed)
		assert.Equal(t, tally{}, tl)
	})
}

// The same on SQLite, where a second relay waits, and takes over when the first has stopped.
func TestStandby(t *testing.T) {
	h := newHouse(t, sqlite())
	b := newBroker()
	stop := start(t, h.relay(t, b))
	h.insert(t, numbered("first", 0))
	b.wait(t, 1)
	second := h.relay(t, b)
	start(t, second)
	committed := h.produce(t, "", 30)
	committed["first"] = 1
	h.drained(t)
	assert.Zero(t, second.Stats().Published, "two relays at work")
	stop()
	h.insert(t, numbered("last", 0))
	h.drained(t)
	committed["last"] = 1
	got, _ := b.got()
	tl := judge(got, committed)
	assert.Equal(t, tally{}, tl)
}

// Sessions have another isolation level by default. There the first statement's snapshot would hold
// for all, and messages that the last relay has deleted would be published again.
func TestSessionsOfAnotherLevel(t *testing.T) {
	for _, tt := range []struct {
		e    engine
		more string
	}{
		{postgres(), "&default_transaction_isolation=serializable"},
		{mariadb(), servertest.SessionVariable("isolation", "'SERIALIZABLE'")},
	} {
		t.Run(tt.e.name, func(t *testing.T) {
			h := newHouse(t, tt.e)
			other := openDB(t, tt.e.driver, h.dsn+tt.more)
			b := newBroker()
			for range 4 {
				start(t, h.relay(t, b, func(c *outbox.RelayConfig) {
					c.DB, c.BatchSize, c.Workers = other, 20, 2
				}))
			}
			committed := h.produce(t, "", 100)
			h.drained(t)
			got, _ := b.got()
			tl := judge(got, committed)
			assert.Equal(t, tally{}, tl)
		})
	}
}

// A pool of MySQL with autocommit off, as sqladapter wants it: statements outside of a transaction
// would see one snapshot forever, so a relay would see no message after the first poll.
func TestAutocommitOff(t *testing.T) {
	h := newHouse(t, mariadb())
	other := *h
	other.db = openDB(t, "mysql", h.dsn+"&autocommit=0")
	other.db.SetMaxOpenConns(2) // so that connections are used again
	b := newBroker()
	start(t, other.relay(t, b, few))
	for i := range 3 {
		other.insert(t, numbered("a", i))
		b.wait(t, i+1)
		other.drained(t)
	}
}

// The table may be named with its schema and without: it is the same lock.
func TestOneLockForOneTable(t *testing.T) {
	h := newHouse(t, postgres())
	named, err := outbox.New(outbox.Config{Dialect: outbox.Postgres, Schema: "public",
		Table: h.table})
	require.NoError(t, err)
	inHand, release := make(chan struct{}, 1), make(chan struct{})
	slow := newBroker()
	slow.before = func(context.Context, []outbox.Message) error {
		inHand <- struct{}{}
		<-release
		return nil
	}
	h.insert(t, numbered("a", 0))
	start(t, h.relay(t, slow, func(c *outbox.RelayConfig) {
		c.Workers, c.PublishTimeout = 1, patience
	}))
	<-inHand
	quick := newBroker()
	stop := start(t, h.relay(t, quick, func(c *outbox.RelayConfig) {
		c.Outbox, c.Workers = named, 1
	}))
	const others = 3
	// of another shard: before the last of them, quick also looks at the shard of a/0
	for i := range others {
		h.insert(t, outbox.Message{ID: fmt.Sprint("c/", i), Topic: "t", Key: []byte("account-7")})
		quick.wait(t, i+1)
	}
	stop()
	close(release)
	got, _ := quick.got()
	assert.False(t, slices.ContainsFunc(got, func(m outbox.Message) bool { return m.ID == "a/0" }))
}

// A batch of more rows than one statement takes keeps its order.
func TestManyMessages(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		var many []outbox.Message
		for i := range 1700 {
			many = append(many, numbered("a", i))
		}
		h.insert(t, many...)
		b := newBroker()
		start(t, h.relay(t, b, func(c *outbox.RelayConfig) { c.BatchBytes = 1000 }))
		h.drained(t)
		got, _ := b.got()
		tl := judge(got, map[string]int{"a": 1700})
		assert.Equal(t, tally{}, tl)
		assert.GreaterOrEqual(t, b.calls, 10)
		assert.LessOrEqual(t, b.calls, 200)
	})
}

// Two outboxes in one database do not know of each other.
func TestTablesApart(t *testing.T) {
	e := postgres()
	dsn := e.dsn(t)
	one, two := newHouseAt(t, e, dsn), newHouseAt(t, e, dsn)
	b := newBroker()
	start(t, one.relay(t, b))
	one.insert(t, numbered("one", 0))
	two.insert(t, numbered("two", 0))
	one.drained(t)
	lag, err := two.box.Lag(t.Context(), two.db)
	require.NoError(t, err)
	assert.EqualValues(t, 1, lag.Pending)
	assert.Len(t, b.messages, 1)
}
