package outbox_test

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
)

// Backends of the relays are killed all the time, and their locks end with them. The relay that
// gets the shard next publishes again the messages that they had in hand.
func TestKilledBackends(t *testing.T) {
	h := newHouse(t, postgres())
	db := openDB(t, "pgx", h.dsn+"&application_name="+h.table)
	b := newBroker()
	for range 2 {
		start(t, h.relay(t, b, few, func(c *outbox.RelayConfig) { c.DB = db }))
	}
	end := make(chan struct{})
	var killed atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			var n int
			err := h.db.QueryRowContext(t.Context(),
				`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity`+
					` WHERE application_name = $1 AND state = 'idle in transaction'`,
				h.table).Scan(&n)
			assert.NoError(t, err)
			killed.Add(int64(n))
		}
	})
	committed := map[string]int{}
	// the killer may be late
	for round := 0; round == 0 || killed.Load() == 0 && !t.Failed() && round < 1000; round++ {
		maps.Copy(committed, h.produce(t, fmt.Sprint("round", round), 60))
	}
	close(end)
	wg.Wait()
	h.drained(t)
	got, _ := b.got()
	tl := judge(got, committed)
	assert.Zero(t, tl.lost)
	assert.Zero(t, tl.inversions)
	assert.NotZero(t, killed.Load())
	t.Logf("%d backends killed, %d messages", killed.Load(), len(got))
}

// The server is killed and comes back, twice, while messages are written and published.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	for kind, e := range map[servertest.Kind]engine{servertest.KindPostgres: postgres(),
		servertest.KindMariaDB: mariadb()} {
		t.Run(e.name, func(t *testing.T) {
			server := servertest.Private(t, kind)
			h := newHouseAt(t, e, server.Addr)
			b := newBroker()
			for range 2 {
				start(t, h.relay(t, b, few))
			}
			committed := map[string]int{}
			for round := range 3 {
				maps.Copy(committed, h.produce(t, fmt.Sprint("round", round), 20))
				if round < 2 {
					server.Kill(1)
					server.Start(1)
				}
			}
			h.drained(t)
			got, _ := b.got()
			tl := judge(got, committed)
			assert.Zero(t, tl.lost)
			assert.Zero(t, tl.inversions)
			t.Logf("%d came twice", tl.duplicates)
		})
	}
}
