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
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/franzpub"
	"github.com/onceward/onceward/outbox/saramapub"
)

// plainClients are the clients of a program that sets nothing. They wait for a missing topic as
// long as their defaults say.
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

// side is an outbox of its own, with a relay and a publisher of its own.
type side struct {
	*house
	timed *clocked
	topic string // a healthy one
	took  []time.Duration
}

// one commits a message of the healthy topic, and returns when it is published.
func (s *side) one(t *testing.T) {
	t.Helper()
	id := servertest.Prefix(t)
	ended := s.timed.expect(id)
	s.insert(t, outbox.Message{ID: id, Topic: s.topic, Key: []byte(id), Payload: []byte(id)})
	began := time.Now()
	s.box.Notify()
	select {
	case at := <-ended:
		s.took = append(s.took, at.Sub(began))
	case <-time.After(limit(t)):
		require.Fail(t, "a message of a healthy topic is not published")
	}
}

func (s *side) at(q float64) time.Duration {
	slices.Sort(s.took)
	return quantile(s.took, q)
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// troubles are three kinds of topics that fail: one that does not exist, one that the client may
// not write to, and one whose partitions have no leader.
func troubles(t *testing.T) (brokers []string, healthy string, bad []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3),
		kfake.SeedTopics(6, "healthy", "denied", "leaderless"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cluster.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata, kmsg.Produce}, Topic: "denied",
			Err: kerr.TopicAuthorizationFailed, Count: -1},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata, kmsg.Produce}, Topic: "leaderless",
			Err: kerr.LeaderNotAvailable, Count: -1},
	)
	return cluster.ListenAddrs(), "healthy", []string{"missing", "denied", "leaderless"}
}

// Any number of messages of a failing topic are ahead of those of a healthy one. The healthy topic
// is published as if it were alone.
func TestFailingTopicAhead(t *testing.T) {
	brokers, healthy, bad := troubles(t)
	// kgo waits for a leader until the call ends.
	soon := func(c *outbox.RelayConfig) { c.PublishTimeout = 2 * time.Second }
	for _, c := range plainClients() {
		for _, topic := range bad {
			t.Run(c.name+"/"+topic, func(t *testing.T) {
				testFailingTopic(t, func() outbox.Publisher {
					return c.publisher(t, brokers)
				}, healthy, topic, 50, 50, soon)
			})
		}
	}
	t.Run("backlog", func(t *testing.T) {
		testFailingTopic(t, func() outbox.Publisher {
			return plainClients()[1].publisher(t, brokers)
		}, healthy, "missing", 100_000, 100)
	})
}

func TestApacheKafkaMissingTopic(t *testing.T) {
	brokers := servertest.Kafka(t)
	topic := servertest.Prefix(t)
	createTopic(t, brokers, topic, 1, nil)
	for _, c := range plainClients() {
		t.Run(c.name, func(t *testing.T) {
			testFailingTopic(t, func() outbox.Publisher {
				return c.publisher(t, brokers)
			}, topic, servertest.Prefix(t)+"-missing", 50, 50)
		})
	}
}

// testFailingTopic compares two outboxes, one with n messages of a failing topic ahead. It times
// one message after the other in both in turn, so that both have the machine's noise.
func testFailingTopic(t *testing.T, publisher func() outbox.Publisher, healthy, bad string,
	n, each int, edit ...func(*outbox.RelayConfig)) {
	alone := &side{house: newHouse(t, postgres()), timed: &clocked{Publisher: publisher()},
		topic: healthy}
	behind := &side{house: newHouse(t, postgres()), timed: &clocked{Publisher: publisher()},
		topic: healthy}
	insertMany(t, behind.house, bad, n)
	failed := make(chan *outbox.TopicError, 1000)
	relay := func(c *outbox.RelayConfig) {
		c.RetryMin, c.RetryMax = outbox.DefaultRetryMin, outbox.DefaultRetryMax
		c.OnError = func(err error) {
			if one, is := errorsAs(err); is {
				failed <- one
			} else {
				t.Logf("relay: %v", err)
			}
		}
	}
	start(t, alone.relay(t, alone.timed, relay))
	alone.one(t)
	alone.took = nil // alone's client knows the topic now, and the next line has behind's learn it
	behind.timed.Publish(t.Context(), []outbox.Message{{ID: "first", Topic: healthy}})
	r := behind.relay(t, behind.timed, append(edit, relay)...)
	stop := start(t, r)
	for range each {
		alone.one(t)
		behind.one(t)
	}
	first := <-failed
	assert.Equal(t, bad, first.Topic)
	assert.Positive(t, first.Failures)
	failing := r.Failing()
	require.Len(t, failing, 1)
	assert.Equal(t, bad, failing[0].Topic)
	began := time.Now()
	stop()
	stopped := time.Since(began)
	t.Logf("alone p50 %v p99 %v max %v, behind %d p50 %v p99 %v max %v; stopped in %v",
		alone.at(.5), alone.at(.99), alone.at(1), n,
		behind.at(.5), behind.at(.99), behind.at(1), stopped)
	assert.Less(t, behind.at(.5), 2*alone.at(.5)+10*time.Millisecond,
		"the healthy topic is slowed down")
	assert.Less(t, behind.at(.99), max(time.Second, 5*alone.at(.99)))
	assert.Less(t, stopped, 5*time.Second)
	lag, err := behind.box.Lag(t.Context(), behind.db)
	require.NoError(t, err)
	assert.Equal(t, outbox.Lag{Pending: min(n, outbox.LagLimit), Oldest: lag.Oldest}, lag,
		"nothing is lost, nor parked")
}

// Calls of a topic fail, or take long, at random: several relays keep the order of each key,
// publish each message once, and lose none; and a relay that is started again continues where
// another stopped.
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
		all[i] = outbox.Message{ID: id, Topic: topic, Key: []byte(id),
			Payload: []byte("of a topic that is missing")}
	}
	h.insert(t, all...)
}
