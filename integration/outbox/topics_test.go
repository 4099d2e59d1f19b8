package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/franzpub"
	"github.com/onceward/onceward/outbox/saramapub"
)

// plainClients are those of a program that sets nothing, which wait for a missing topic for as long
// as their defaults say.
func plainClients() []client {
	return []client{
		{"sarama", func(t *testing.T, brokers []string) outbox.Publisher {
			cfg := saramapub.SafeConfig(sarama.NewConfig())
			cfg.Metadata.AllowAutoTopicCreation = false
			c, err := sarama.NewClient(brokers, cfg)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			p, err := saramapub.New(c)
			require.NoError(t, err)
			t.Cleanup(func() { _ = p.Close() })
			return p
		}},
		{"franz", func(t *testing.T, brokers []string) outbox.Publisher {
			c, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
			require.NoError(t, err)
			t.Cleanup(c.Close)
			p, err := franzpub.New(c)
			require.NoError(t, err)
			return p
		}},
	}
}

// clocked remembers when a message was acknowledged.
type clocked struct {
	outbox.Publisher
	mu sync.Mutex
	of map[string]chan time.Time
}

func (c *clocked) expect(id string) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]chan time.Time{}
	}
	c.of[id] = make(chan time.Time, 10)
	return c.of[id]
}

func (c *clocked) Publish(ctx context.Context, messages []outbox.Message) []error {
	results := c.Publisher.Publish(ctx, messages)
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, m := range messages {
		if to := c.of[m.ID]; to != nil && (results == nil || results[i] == nil) {
			to <- now
		}
	}
	return results
}

// oneByOne commits messages of a healthy topic, each when the one before is published, and returns
// how long each took, sorted.
func oneByOne(t *testing.T, h *house, c *clocked, topic string, n int) []time.Duration {
	t.Helper()
	var took []time.Duration
	for i := range n {
		id := fmt.Sprint(servertest.Prefix(t), "/", i)
		ended := c.expect(id)
		h.insert(t, outbox.Message{ID: id, Topic: topic, Key: []byte(id), Payload: []byte(id)})
		began := time.Now()
		h.box.Notify()
		select {
		case at := <-ended:
			took = append(took, at.Sub(began))
		case <-time.After(patience):
			require.Fail(t, "a message of a healthy topic is not published")
		}
	}
	slices.Sort(took)
	return took
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Messages of a topic that does not exist are ahead of those of a healthy one, however many: these
// go on as if they were alone.
func TestMissingTopic(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(6, "healthy"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	for _, c := range plainClients() {
		for _, n := range []int{5, 50, 100_000} {
			t.Run(fmt.Sprintf("%s/%d", c.name, n), func(t *testing.T) {
				testMissingTopic(t, c.publisher(t, cluster.ListenAddrs()), "healthy", "missing", n)
			})
		}
	}
}

func TestApacheKafkaMissingTopic(t *testing.T) {
	brokers := servertest.Kafka(t)
	topic := servertest.Prefix(t)
	createTopic(t, brokers, topic, 1, nil)
	for _, c := range plainClients() {
		for _, n := range []int{5, 50} {
			t.Run(fmt.Sprintf("%s/%d", c.name, n), func(t *testing.T) {
				testMissingTopic(t, c.publisher(t, brokers), topic, servertest.Prefix(t)+"-missing", n)
			})
		}
	}
}

func testMissingTopic(t *testing.T, p outbox.Publisher, healthy, missing string, n int) {
	h := newHouse(t, postgres())
	timed := &clocked{Publisher: p}
	relay := func(c *outbox.RelayConfig) { c.RetryMin, c.RetryMax = outbox.DefaultRetryMin, outbox.DefaultRetryMax }
	stop := start(t, h.relay(t, timed, relay))
	const each = 100
	oneByOne(t, h, timed, healthy, 5) // the client knows the topic
	alone := oneByOne(t, h, timed, healthy, each)
	stop()

	insertMany(t, h, missing, n)
	failed := make(chan *outbox.TopicError, 1000)
	r := h.relay(t, timed, relay, func(c *outbox.RelayConfig) {
		c.OnError = func(err error) {
			if one, is := errorsAs(err); is {
				failed <- one
			} else {
				t.Logf("relay: %v", err)
			}
		}
	})
	stop = start(t, r)
	behind := oneByOne(t, h, timed, healthy, each)
	first := <-failed
	assert.Equal(t, missing, first.Topic)
	assert.Positive(t, first.Failures)
	failing := r.Failing()
	require.Len(t, failing, 1)
	assert.Equal(t, missing, failing[0].Topic)
	began := time.Now()
	stop()
	stopped := time.Since(began)
	t.Logf("alone p50 %v p99 %v, behind p50 %v p99 %v max %v; stopped in %v", quantile(alone, .5), quantile(alone, .99),
		quantile(behind, .5), quantile(behind, .99), behind[each-1], stopped)
	assert.Less(t, quantile(behind, .5), 4*quantile(alone, .5)+100*time.Millisecond, "the healthy topic is slowed down")
	assert.Less(t, quantile(behind, .95), time.Second)
	assert.Less(t, stopped, 5*time.Second)
	lag, err := h.box.Lag(t.Context(), h.db)
	require.NoError(t, err)
	assert.Equal(t, outbox.Lag{Pending: min(n, outbox.LagLimit), Oldest: lag.Oldest}, lag, "nothing is lost, nor parked")
}

// Calls of a topic fail, or take long, at random: several relays keep the order of each key, publish
// each message once, and lose none; and a relay that is started again goes on where another stopped.
func TestTroubledTopicKeepsOrder(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		h := newHouse(t, e)
		b := newBroker()
		var calls atomic.Int64
		b.before = func(ctx context.Context, messages []outbox.Message) error {
			if messages[0].Topic == "u" {
				return nil
			}
			switch n := calls.Add(1); {
			case n > 60:
				return nil
			case n%3 == 0:
				return errDown
			case n%5 == 0: // for longer than the others wait for it
				wait := time.NewTimer(300 * time.Millisecond)
				defer wait.Stop()
				select {
				case <-wait.C:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}
		committed := map[string]int{}
		insert := func(from, to int) {
			for i := from; i < to; i++ {
				for k := range 12 {
					m := numbered(fmt.Sprint("k", k), i)
					if k%2 == 0 {
						m.Topic = "u"
					}
					h.insert(t, m)
					committed[fmt.Sprint("k", k)]++
				}
			}
		}
		few := func(c *outbox.RelayConfig) { c.BatchSize = 10 }
		stop := start(t, h.relay(t, b, few))
		start(t, h.relay(t, b, few))
		insert(0, 15)
		stop()
		start(t, h.relay(t, b, few))
		insert(15, 30)
		h.drained(t)
		got, _ := b.got()
		assert.Equal(t, tally{}, judge(got, committed), "of %d", len(got))
		assert.Greater(t, calls.Load(), int64(5))
	})
}

func errorsAs(err error) (one *outbox.TopicError, is bool) {
	is = errors.As(err, &one)
	return one, is
}

// insertMany commits n messages with a key each.
func insertMany(t *testing.T, h *house, topic string, n int) {
	t.Helper()
	all := make([]outbox.Message, n)
	for i := range all {
		id := fmt.Sprint(topic, "/", i)
		all[i] = outbox.Message{ID: id, Topic: topic, Key: []byte(id), Payload: []byte("of a topic that is missing")}
	}
	h.insert(t, all...)
}
