package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/sqladapter"
)

// service books payments, and publishes each by the outbox, in one transaction with the mark.
type service struct {
	*house
	marks  *sqladapter.Ledger
	ledger string
}

func newService(t *testing.T, e engine) *service {
	t.Helper()
	s := &service{house: newHouse(t, e)}
	dialect := map[outbox.Dialect]sqladapter.Dialect{
		outbox.Postgres: sqladapter.Postgres, outbox.MySQL: sqladapter.MySQL,
		outbox.SQLite: sqladapter.SQLite,
	}[e.dialect]
	s.ledger = s.table + "_ledger"
	marks, err := sqladapter.New(sqladapter.Config{Dialect: dialect, Namespace: "payments",
		Table: s.table + "_marks"})
	require.NoError(t, err)
	require.NoError(t, marks.Migrate(t.Context(), s.db))
	s.marks = marks
	s.exec(t, `CREATE TABLE `+s.ledger+` (payment VARCHAR(40) NOT NULL)`)
	t.Cleanup(func() {
		s.exec(t, `DROP TABLE `+s.ledger)
		s.exec(t, `DROP TABLE `+s.table+`_marks`)
		s.exec(t, `DROP TABLE IF EXISTS `+s.table+`_marks_meta`)
		s.exec(t, `DROP TABLE IF EXISTS `+s.table+`_marks_results`)
	})
	return s
}

// pay is one request. The id of the message is made of the key that the payment is marked
// under, so that a repetition has the same one.
func (s *service) pay(ctx context.Context, payment, account string) (first bool, err error) {
	mark, err := s.marks.Do(ctx, s.db, payment, func(ctx context.Context, tx *sql.Tx) error {
		query := `INSERT INTO ` + s.ledger + ` (payment) VALUES (?)`
		if s.e.dialect == outbox.Postgres {
			query = `INSERT INTO ` + s.ledger + ` (payment) VALUES ($1)`
		}
		if _, err := tx.ExecContext(ctx, query, payment); err != nil {
			return err
		}
		return s.box.InsertTx(ctx, tx, outbox.Message{
			ID: "booked:" + payment, Topic: "t", Key: []byte(account), Payload: []byte(payment),
		})
	})
	s.box.Notify() // also for a duplicate: messages that the first has left are sent now
	return mark.First(), err
}

func (s *service) bookings(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, s.db.QueryRowContext(t.Context(),
		`SELECT count(*) FROM `+s.ledger).Scan(&n))
	return n
}

// A request comes twice, the second time because the answer to the first was lost before the
// message was published. The duplicate has no effect of its own, and the recorded message is sent.
func TestDuplicateSendsWhatIsRecorded(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newService(t, e)
		first, err := s.pay(t.Context(), "p1", "a")
		require.True(t, first, "the first: %t, %v", first, err)
		require.NoError(t, err)
		b := newBroker()
		start(t, s.relay(t, b, func(c *outbox.RelayConfig) {
			c.PollMin, c.PollMax = time.Hour, time.Hour
		}))
		first, err = s.pay(t.Context(), "p1", "a")
		require.False(t, first, "the second: %t, %v", first, err)
		require.NoError(t, err)
		b.wait(t, 1)
		s.drained(t)
		got, _ := b.got()
		assert.Len(t, got, 1)
		assert.Equal(t, "booked:p1", got[0].ID)
		assert.EqualValues(t, 1, s.bookings(t))
	})
}

// consumer has the effect of each message once, by the id that it carries.
type consumer struct {
	mu      sync.Mutex
	effects map[string]int
	changed chan struct{}
}

func startConsumer(t *testing.T, brokers []string) *consumer {
	t.Helper()
	c := &consumer{effects: map[string]int{}, changed: make(chan struct{}, 1)}
	d, err := dedup.New(dedup.Memory(10_000),
		dedup.Config{Namespace: "bookings", Window: 30 * 24 * time.Hour,
			LeaseTTL: 10 * time.Second})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- kafkasarama.Consume(ctx, brokers, "g", []string{"t"}, nil, kafkaadapter.Config{
			Deduper: d, Handler: c.handle, ID: kafkaadapter.FromHeader(outbox.DefaultIDHeader)})
	}()
	t.Cleanup(func() {
		cancel()
		err := <-ended
		assert.False(t, err != nil && !errors.Is(err, context.Canceled), "consumer: %v", err)
		_ = d.Close(context.Background())
	})
	return c
}

func (c *consumer) handle(_ context.Context, m *kafkaadapter.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.effects[m.ID]++
	select {
	case c.changed <- struct{}{}:
	default:
	}
	return nil
}

func (c *consumer) count() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := map[string]int{}
	for id, n := range c.effects {
		counts[id] = n
	}
	return counts
}

// The whole way: requests that come several times, and an effect with its mark and its message in
// one transaction. Relays in processes of their own are killed before and after they publish to
// Kafka, and a consumer deduplicates by the carried id. Every effect happens once on both sides,
// although messages came twice.
func TestEndToEnd(t *testing.T) {
	forEach(t, testEndToEnd)
}

func testEndToEnd(t *testing.T, e engine) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "t"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	s := newService(t, e)
	c := startConsumer(t, cluster.ListenAddrs())
	cfg := relayConfig{Driver: e.driver, DSN: s.dsn, Table: s.table, Dialect: e.dialect,
		Brokers: cluster.ListenAddrs()}
	const payments = 120
	var clients sync.WaitGroup
	for p := range 4 {
		rnd := rand.New(rand.NewPCG(3, uint64(p)))
		clients.Go(func() {
			for i := range payments {
				for range 1 + rnd.IntN(2) {
					_, err := s.pay(t.Context(), fmt.Sprint("p", (i+p*30)%payments),
						fmt.Sprint("account-", i%9))
					assert.NoError(t, err)
				}
			}
		})
	}
	for i := range int64(3) { // relays that die, one after the other
		doomed := cfg
		doomed.KillAfter = 2 + i
		if i == 1 {
			doomed.KillBefore, doomed.KillAfter = 2, 0
		}
		select {
		case <-relayProcess(t, doomed):
		case <-time.After(limit(t)):
			t.Fatal("a relay did not come to its death")
		}
	}
	clients.Wait()
	relayProcess(t, cfg)
	s.drained(t)
	records := consume(t, cluster.ListenAddrs(), "t", func(all []*kgo.Record) bool {
		return distinct(t, all) == payments
	})
	eventually(t, "every effect of the consumer", func() bool { return len(c.count()) == payments })
	for id, n := range c.count() {
		assert.Equal(t, 1, n, id)
	}
	n := s.bookings(t)
	assert.Equal(t, payments, n)
	assert.NotEqual(t, payments, len(records))
	t.Logf("%d payments, %d records", payments, len(records))
}

func distinct(t *testing.T, records []*kgo.Record) int {
	ids := map[string]bool{}
	for _, m := range messagesOf(t, records) {
		ids[m.ID] = true
	}
	return len(ids)
}
