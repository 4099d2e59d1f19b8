package kafkafranz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

var errBroken = errors.New("broken")

type parkFunc = func(context.Context, *kafkaadapter.Message, error) error

// deadLetters makes a dead-letter topic, and what sends to it.
func (r *rig) deadLetters(opts ...kgo.Opt) (kafkaadapter.Producer, parkFunc) {
	r.t.Helper()
	require.NoError(r.t, r.cluster.CreateTopic("dead", 1, nil))
	p, err := Producer(r.newClient(append(opts, kgo.RecordDeliveryTimeout(5*time.Second))...))
	require.NoError(r.t, err)
	park, err := kafkaadapter.DeadLetters(kafkaadapter.DeadLetterConfig{Producer: p,
		Topic: func(*kafkaadapter.Message) string { return "dead" }})
	require.NoError(r.t, err)
	return p, park
}

// A batch handler gets what may run, answers for each, and the one that fails is run again.
func TestBatchHandler(t *testing.T) {
	r := newRig(t, cooperative, 2)
	r.produce(0, 0, 500)
	r.produce(1, 500, 500)
	var mu sync.Mutex
	largest, failed := 0, false
	m := r.join(nil, func(c *kafkaadapter.Config) {
		c.Handler = nil
		c.BatchHandler = func(_ context.Context, ms []*kafkaadapter.Message) []error {
			mu.Lock()
			defer mu.Unlock()
			largest = max(largest, len(ms))
			errs := make([]error, len(ms))
			for i, m := range ms {
				if m.ID == "evt_000123" && !failed {
					failed, errs[i] = true, errBroken
					continue
				}
				r.affect(m)
			}
			return errs
		}
	})
	r.committed()
	m.leave()
	r.once(1000)
	assert.GreaterOrEqual(t, largest, 2, "messages in the largest batch")
	assert.True(t, failed)
}

// What can never be processed stops the consumer where nobody parks it, and stays.
func TestUnprocessable(t *testing.T) {
	for _, row := range []struct {
		name   string
		record *kgo.Record
		err    error
	}{
		{"permanent", &kgo.Record{Headers: []kgo.RecordHeader{{Key: "message-id",
			Value: []byte("bad")}}}, errBroken},
		{"no id", &kgo.Record{Value: []byte("x")}, kafkaadapter.ErrNoID},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, cooperative, 1)
			r.produce(0, 0, 5)
			row.record.Topic = orders
			r.send(row.record)
			m := r.join(func(_ context.Context, m *kafkaadapter.Message) error {
				if m.ID == "bad" {
					return dedup.Permanent(errBroken)
				}
				return nil
			}, nil)
			err := m.wait()
			var message *kafkaadapter.UnprocessableError
			require.ErrorAs(t, err, &message)
			require.ErrorIs(t, err, row.err)
			assert.Equal(t, orders, message.Topic)
			assert.EqualValues(t, 5, message.Offset)
			r.eventually(func() (bool, string) {
				at := r.cluster.GroupInfo(group).Commits[orders][0].Offset
				return at == 5, fmt.Sprint("committed to ", at)
			})
		})
	}
}

// A poison message uses its attempts up, is sent to the dead-letter topic with what there is
// to know of it, and comes back under its own id. Meanwhile the topic is down.
func TestDeadLetterAndReplay(t *testing.T) {
	r := newRig(t, cooperative, 1)
	producer, park := r.deadLetters()
	fault := r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "dead",
		Err: kerr.InvalidRecord, Count: 2})
	healed := make(chan struct{})
	m := r.join(func(_ context.Context, m *kafkaadapter.Message) error {
		select {
		case <-healed:
			return nil
		default:
		}
		if m.ID == "evt_000003" {
			return kafkaadapter.RetryAfter(time.Millisecond, errBroken)
		}
		return nil
	}, func(c *kafkaadapter.Config) { c.Attempts.Max, c.Park = 3, park })
	r.parked["evt_000003"] = true // given up on, which is no failure for good
	r.produce(0, 0, 6)
	r.committed()
	assert.Equal(t, 2, fault.Hits(), "letters for which the dead-letter topic was down")
	r.once(5)

	letters := r.newClient(kgo.ConsumeTopics("dead")).PollFetches(t.Context()).Records()
	require.Len(t, letters, 1)
	letter := Message(letters[0])
	for key, want := range map[string]string{
		kafkaadapter.HeaderID: "evt_000003", kafkaadapter.HeaderTopic: orders,
		kafkaadapter.HeaderPartition: "0", kafkaadapter.HeaderOffset: "3",
		kafkaadapter.HeaderAttempts: "3", "message-id": "evt_000003",
	} {
		assert.Equal(t, want, letter.Header(key), key)
	}
	assert.Contains(t, letter.Header(kafkaadapter.HeaderError), "broken")
	assert.Equal(t, "evt_000003", string(letter.Value))

	close(healed)
	d := r.deduper(r.store)
	again, err := kafkaadapter.Replay(t.Context(), d, letter)
	require.NoError(t, err)
	r.mu.Lock()
	r.log[0] = append(r.log[0], "evt_000003")
	r.mu.Unlock()
	require.NoError(t, producer.Send(t.Context(), again))
	r.committed()
	m.leave()
	r.once(6)
	_, err = kafkaadapter.Replay(t.Context(), d, letter)
	require.ErrorIs(t, err, kafkaadapter.ErrSettled, "replayed again")
	_, err = kafkaadapter.Replay(t.Context(), d, Message(&kgo.Record{}))
	require.ErrorIs(t, err, kafkaadapter.ErrNoDeadLetter)
}

// A letter that is too large goes without its value, and if need be without key and headers.
func TestLargeLetters(t *testing.T) {
	r := newRig(t, cooperative, 1)
	_, park := r.deadLetters(kgo.ProducerBatchMaxBytes(10_000))
	huge := []byte(strings.Repeat("x", 20_000))
	for _, rec := range []*kgo.Record{
		{Topic: orders, Key: []byte("k"), Value: huge},
		{Topic: orders, Key: huge, Value: huge,
			Headers: []kgo.RecordHeader{{Key: "h", Value: huge}}},
	} {
		require.NoError(t, park(t.Context(), Message(rec), errBroken))
	}
	reader := r.newClient(kgo.ConsumeTopics("dead"))
	var letters []*kgo.Record
	for len(letters) < 2 {
		letters = append(letters, reader.PollFetches(t.Context()).Records()...)
	}
	for i, l := range letters {
		assert.Empty(t, l.Value)
		assert.Equal(t, "20000", Message(l).Header(kafkaadapter.HeaderTooLarge))
		assert.Equal(t, i == 0, len(l.Key) > 0, "letter %d has a key", i)
		assert.Empty(t, Message(l).Header("h"))
	}
	_, err := kafkaadapter.Replay(t.Context(), nil, Message(letters[0]))
	require.ErrorIs(t, err, kafkaadapter.ErrNoDeadLetter)
}

// A client that could lose a letter, or wait for one forever, is refused.
func TestBadProducer(t *testing.T) {
	r := newRig(t, cooperative, 1)
	limit := kgo.RecordDeliveryTimeout(time.Second)
	for field, client := range map[string]*kgo.Client{
		"client": nil,
		"kgo.RequiredAcks": r.newClient(limit, kgo.RequiredAcks(kgo.LeaderAck()),
			kgo.DisableIdempotentWrite()),
		"kgo.TransactionalID":        r.newClient(limit, kgo.TransactionalID("t")),
		"kgo.RecordDeliveryTimeout":  r.newClient(),
		"kgo.RecordDeliveryTimeout ": r.newClient(kgo.RecordDeliveryTimeout(time.Hour)),
	} {
		_, err := Producer(client)
		wantInput(t, err, strings.TrimSpace(field))
	}
}

// Messages without an id are known by their position, which has the topic's UUID: those of a
// topic that was made anew are other messages.
func TestPositions(t *testing.T) {
	r := newRig(t, cooperative, 1)
	var mu sync.Mutex
	var ids []string
	member := func() *member {
		return r.join(func(_ context.Context, m *kafkaadapter.Message) error {
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, m.ID)
			return nil
		}, func(c *kafkaadapter.Config) {
			c.Positions = true
			c.Observer.MissingID = func(*kafkaadapter.Message) { r.note("missing") }
		})
	}
	at := time.UnixMilli(1e12)
	send := func() {
		for range 5 {
			r.send(&kgo.Record{Topic: orders, Value: []byte("x"), Timestamp: at})
		}
	}
	m := member()
	send()
	r.committed()
	m.leave()
	require.NoError(t, r.cluster.DeleteTopic(orders))
	require.NoError(t, r.cluster.CreateTopic(orders, 1, nil))
	r.mu.Lock()
	clear(r.log)
	clear(r.last)
	r.mu.Unlock()
	r.client = r.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	send()
	m = member()
	r.eventually(func() (bool, string) {
		return r.totalEffects() == 10, fmt.Sprint(r.totalEffects(), " effects")
	})
	m.leave()
	slices.Sort(ids)
	assert.Len(t, slices.Compact(ids), 10, "ids of 10 messages")
	assert.GreaterOrEqual(t, r.noted("missing"), 10, "messages without an id")
}

// Where brokers do not tell a topic's UUID, nothing runs that depends on it.
func TestTopicWithoutUUID(t *testing.T) {
	older := kversion.Stable()
	older.SetMaxKeyVersion(int16(kmsg.Fetch), 12)
	for name, change := range map[string]func(*kafkaadapter.Config){
		"Positions": func(c *kafkaadapter.Config) { c.Positions = true },
		"RangeHandler": func(c *kafkaadapter.Config) {
			c.Deduper, c.Unclaimed, c.Handler, c.Order = nil, true, nil, kafkaadapter.ByPartition
			c.RangeHandler = func(context.Context, *kafkaadapter.Range) error {
				return dedup.Permanent(errBroken)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, cooperative, 1)
			r.produce(0, 0, 1)
			told := make(chan error, 100)
			m := r.join(nil, func(c *kafkaadapter.Config) {
				change(c)
				c.Observer.GroupError = func(err error) { told <- err }
			}, kgo.MaxVersions(older))
			require.ErrorContains(t, <-told, "has no UUID, which Positions and a RangeHandler need")
			m.leave()
			r.once(0)
		})
	}
}

// Too much in flight pauses a partition, and others go on; Progress says so.
func TestPause(t *testing.T) {
	r := newRig(t, cooperative, 2)
	g := newGateway()
	paused := make(chan bool, 100)
	m := r.join(func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.Partition == 0 {
			return g.handle(ctx, m)
		}
		return nil
	}, func(c *kafkaadapter.Config) {
		c.Tuning.HighWater, c.Tuning.LowWater, c.Tuning.Workers = 100, 50, 4
		c.Observer.Paused = func(_ string, p int32, on bool) {
			if p == 0 {
				paused <- on
			}
		}
	}, kgo.FetchMaxPartitionBytes(4<<10))
	for i := range 20 { // batches that are small against what may be in flight
		r.produce(0, 50*i, 50)
		r.produce(1, 1000+50*i, 50)
	}
	assert.True(t, <-paused, "resumed first")
	r.eventually(func() (bool, string) {
		return r.totalEffects() == 1000, "the other partition does not go on"
	})
	all := m.consumer.Progress()
	require.Len(t, all, 2)
	assert.True(t, all[0].Backlogged)
	assert.Zero(t, all[0].Oldest)
	assert.GreaterOrEqual(t, all[0].InFlight, 100)
	assert.Less(t, all[0].InFlight, 1000)
	close(g.open)
	r.committed()
	assert.False(t, <-paused, "paused twice")
	all = m.consumer.Progress()
	require.Len(t, all, 2)
	assert.Zero(t, all[0].Lag)
	assert.EqualValues(t, 1000, all[0].Watermark)
	m.leave()
	assert.Empty(t, m.consumer.Progress(), "after Run")
	r.once(2000)
}

// The handler records messages itself.
func TestUnclaimed(t *testing.T) {
	r := newRig(t, cooperative, 1)
	r.produce(0, 0, 100)
	m := r.join(nil, func(c *kafkaadapter.Config) {
		c.Deduper, c.Unclaimed = nil, true
		c.Handler = func(ctx context.Context, m *kafkaadapter.Message) error {
			if m.Attempt == 1 && m.Offset%10 == 0 {
				return errBroken
			}
			key, err := driver.NewID("t", kafkaadapter.ScopeOf(group, orders), m.ID)
			if err != nil {
				return err
			}
			token := driver.Token{1}
			r.store.Claim(ctx, []driver.ClaimRequest{{ID: key, Token: token, Lease: time.Second,
				Hold: time.Minute}})
			r.store.Finish(ctx, []driver.Finish{{ID: key, Token: token,
				State:  driver.StateSucceeded,
				Window: time.Hour}})
			r.affect(m)
			return nil
		}
	})
	r.committed()
	m.leave()
	r.once(100)
}

// A hook may ask for Progress while partitions come and are committed.
func TestProgressInHooks(t *testing.T) {
	r := newRig(t, cooperative, 4)
	for p := range int32(4) {
		r.produce(p, int(p)*10, 10)
	}
	var consumer atomic.Pointer[Consumer]
	ask := func() {
		if c := consumer.Load(); c != nil {
			c.Progress()
		}
	}
	m := r.join(nil, func(c *kafkaadapter.Config) {
		c.Observer.Assigned = func(string, int32, int32) { r.note("assigned"); ask() }
		c.Observer.Committing = func(string, int32, int64) { ask() }
		c.Observer.Committed = func(string, int32, int64) { ask() }
		c.Observer.Revoked = func(string, int32, int, int) { ask() }
	})
	consumer.Store(m.consumer)
	r.committed()
	other := r.join(nil, nil)
	r.members(2)
	other.leave()
	r.eventually(func() (bool, string) {
		return r.noted("assigned") >= 6, "the partitions have not come back"
	})
	m.leave()
	r.once(40)
}
