package outbox_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
)

// naive is a table of messages as published recipes have it, in PostgreSQL.
type naive struct {
	db    *sql.DB
	table string
}

func newNaive(t *testing.T) *naive {
	t.Helper()
	n := &naive{openDB(t, "pgx", postgres().dsn(t)), servertest.Prefix(t)}
	n.exec(t, `CREATE TABLE `+n.table+
		` (id bigserial PRIMARY KEY, topic text NOT NULL, key text NOT NULL, payload text NOT NULL, published_at timestamptz)`)
	n.exec(t, `CREATE INDEX ON `+n.table+` (id) WHERE published_at IS NULL`)
	t.Cleanup(func() {
		_, err := n.db.Exec(`DROP TABLE ` + n.table)
		assert.NoError(t, err)
	})
	return n
}

func (n *naive) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	_, err := n.db.ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
}

func (n *naive) read(t *testing.T, query string, args ...any) (ids []int64,
	messages []outbox.Message) {
	rows, err := n.db.QueryContext(t.Context(), query, args...)
	if !assert.NoError(t, err) {
		return nil, nil
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		var m outbox.Message
		var key, payload string
		if !assert.NoError(t, rows.Scan(&id, &m.Topic, &key, &payload)) {
			return nil, nil
		}
		m.ID, m.Key = payload, []byte(key)
		ids, messages = append(ids, id), append(messages, m)
	}
	assert.NoError(t, rows.Err())
	return ids, messages
}

// The recipe of many articles: SELECT ... FOR UPDATE SKIP LOCKED by itself, then publish and UPDATE
// row by row. Outside of a transaction the locks are gone with the SELECT: four relays publish the
// same rows, and out of order. This test shows the damage, and that the judge of the other tests
// sees it.
func TestRecipeSkipLockedDoubles(t *testing.T) {
	n := newNaive(t)
	const keys, each = 20, 30
	n.exec(t, `INSERT INTO `+n.table+
		` (topic, key, payload) SELECT 't', 'k' || i % 20, 'k' || i % 20 || '/' || i / 20 FROM generate_series(0, 599) AS i`)
	b := newBroker()
	var one sync.Mutex
	var wg, all sync.WaitGroup
	all.Add(4)
	for range 4 {
		wg.Go(func() {
			next := func() ([]int64, []outbox.Message) {
				return n.read(t, `SELECT id, topic, key, payload FROM `+n.table+
					` WHERE published_at IS NULL ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED`)
			}
			// All relays read once, one after the other, before any of them continues. Otherwise
			// one may finish everything before the others begin.
			one.Lock()
			ids, messages := next()
			one.Unlock()
			all.Done()
			for all.Wait(); len(ids) > 0; ids, messages = next() {
				for i, m := range messages {
					b.Publish(t.Context(), []outbox.Message{m})
					_, err := n.db.ExecContext(t.Context(),
						`UPDATE `+n.table+` SET published_at = now() WHERE id = $1`, ids[i])
					if !assert.NoError(t, err) {
						return
					}
				}
			}
		})
	}
	wg.Wait()
	committed := map[string]int{}
	for k := range keys {
		committed[fmt.Sprint("k", k)] = each
	}
	got, _ := b.got()
	tl := judge(got, committed)
	assert.NotZero(t, tl.duplicates)
	t.Logf("%d messages were published for %d rows: %+v", len(got), keys*each, tl)
}

// A cursor over ids skips the rows that are committed after one with a larger id was read.
func TestRecipeCursorLoses(t *testing.T) {
	n := newNaive(t)
	b := newBroker()
	end, first, seen := make(chan struct{}), make(chan struct{}), make(chan struct{})
	read := sync.OnceFunc(func() { close(seen) })
	var reader, writers sync.WaitGroup
	reader.Go(func() {
		last := int64(0)
		for ending := false; ; {
			ids, messages := n.read(t, `SELECT id, topic, key, payload FROM `+
				n.table+` WHERE id > $1 ORDER BY id LIMIT 100`, last)
			if len(ids) > 0 {
				b.Publish(t.Context(), messages)
				last = ids[len(ids)-1]
				read()
				continue
			}
			if ending {
				return
			}
			select {
			case <-end:
				ending = true
			default:
			}
		}
	})
	const producers, each = 16, 40
	for p := range producers {
		rnd := rand.New(rand.NewPCG(2, uint64(p)))
		writers.Go(func() {
			// One message at least has a smaller id than one that was read, and is committed later.
			if p > 0 {
				<-first
			}
			inserted := sync.OnceFunc(func() {
				if p == 0 {
					close(first)
					<-seen
				}
			})
			for i := range each {
				tx, err := n.db.BeginTx(t.Context(), nil)
				if err == nil {
					_, err = tx.ExecContext(t.Context(),
						`INSERT INTO `+n.table+` (topic, key, payload) VALUES ('t', $1, $2)`,
						fmt.Sprint("p", p), fmt.Sprintf("p%d/%d", p, i))
				}
				inserted()
				if !assert.NoError(t, err) {
					return
				}
				delay := time.NewTimer(time.Duration(rnd.IntN(3000)) * time.Microsecond)
				<-delay.C
				assert.NoError(t, tx.Commit())
			}
		})
	}
	writers.Wait()
	close(end)
	reader.Wait()
	committed := map[string]int{}
	for p := range producers {
		committed[fmt.Sprint("p", p)] = each
	}
	got, _ := b.got()
	tl := judge(got, committed)
	assert.NotZero(t, tl.lost)
	t.Logf("of %d committed messages: %+v", producers*each, tl)
}
