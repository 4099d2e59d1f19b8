package kafkafranz

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// unconnected is a client that reaches nobody.
func unconnected(t *testing.T) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	require.NoError(t, err)
	return client
}

// A topic is another one when its UUID is. A look that has none says nothing, and that brokers know
// none is told once.
func TestTopicsAreComparedByUUID(t *testing.T) {
	var told []error
	w := newTopicWatch(nil, nil, func(err error) { told = append(told, err) })
	first, second := [16]byte{1}, [16]byte{2}
	assert.False(t, w.compare(orders, first, nil))
	assert.False(t, w.compare(payments, second, nil))
	assert.False(t, w.compare(orders, [16]byte{}, kerr.UnknownTopicOrPartition))
	assert.False(t, w.compare(orders, first, nil))
	assert.Empty(t, told)
	assert.True(t, w.compare(orders, second, nil))
	assert.False(t, w.compare(payments, [16]byte{}, nil))
	assert.False(t, w.compare(payments, [16]byte{}, nil))
	assert.Len(t, told, 1)
}

// A topic of a share group is deleted when two looks in a row do not find it, if it was there.
func TestTopicOfShareGroupIsDeleted(t *testing.T) {
	missing := error(kerr.UnknownTopicOrPartition)
	for _, share := range []bool{true, false} {
		w := newTopicWatch(nil, nil, nil)
		w.share = share
		for range topicAbsences {
			assert.False(t, w.deleted(payments, missing), "it never was there")
		}
		w.compare(orders, [16]byte{1}, nil)
		assert.False(t, w.deleted(orders, missing))
		assert.False(t, w.deleted(orders, kerr.LeaderNotAvailable))
		assert.False(t, w.deleted(orders, missing), "not in a row")
		assert.Equal(t, share, w.deleted(orders, missing))
	}
}

// A topic may be unknown for three seconds of a series; a second series begins ten seconds after
// the last error of the first.
func TestUnknownTopicPersists(t *testing.T) {
	var u unknownTopics
	now := time.Unix(1e9, 0)
	assert.False(t, u.persists(orders, now))
	assert.False(t, u.persists(orders, now.Add(topicPatience-1)))
	assert.False(t, u.persists(payments, now.Add(topicPatience)))
	assert.True(t, u.persists(orders, now.Add(topicPatience)))
	again := now.Add(topicPatience + topicSeries + 1)
	assert.False(t, u.persists(orders, again))
	assert.True(t, u.persists(orders, again.Add(topicPatience)))
}

// A partition that fails is not fetched for a while, also when it is told twice, or has asked to be
// paused meanwhile; and is fetched again after a second at the latest.
func TestPartitionThatFailsRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, err := kafkadriver.New("kafkafranz", group, kafkaadapter.Config{
			Unclaimed: true, Handler: nothing,
			Attempts: kafkaadapter.Attempts{RetryBase: time.Minute, RetryMax: time.Minute}})
		require.NoError(t, err)
		s := &session{client: unconnected(t), fetching: newFetching(), engine: engine}
		defer s.client.Close()
		at := topicPartition{orders, 3}
		paused := func() bool {
			synctest.Wait()
			return len(s.client.PauseFetchPartitions(nil)[orders]) == 1
		}
		fetches := 0
		for began := time.Now(); time.Since(began) < time.Minute; {
			if fetches++; fetches > 10000 {
				break
			}
			s.rest(at)
			s.rest(at)
			if !assert.True(t, paused(), "it rests") {
				break
			}
			for wait := time.Now(); paused(); {
				if !assert.LessOrEqual(t, time.Since(wait), topicRest) {
					return
				}
				time.Sleep(time.Millisecond)
			}
		}
		assert.Less(t, fetches, 300, "fetches in a minute")

		s.rest(at)
		s.gate(at, true)
		time.Sleep(topicRest + time.Millisecond)
		assert.True(t, paused(), "the partition has asked for it")
		s.rest(at)
		s.gate(at, false)
		assert.True(t, paused(), "it rests still")
		time.Sleep(topicRest + time.Millisecond)
		assert.False(t, paused())
	})
}

// messageLog is a slog.Handler that keeps the lines of one message.
type messageLog struct {
	slog.Handler
	mu  sync.Mutex
	all []string
}

// Enabled implements slog.Handler.
func (*messageLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l *messageLog) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(r.Message, "consumer group") {
		r.Attrs(func(a slog.Attr) bool {
			l.all = append(l.all, a.String())
			return a.Key != "error"
		})
	}
	return nil
}

// replace deletes the topic of orders and creates it again.
func (r *rig) replace() {
	r.t.Helper()
	gone := kmsg.NewPtrDeleteTopicsRequest()
	gone.TopicNames = []string{orders}
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = kmsg.StringPtr(orders)
	gone.Topics = append(gone.Topics, topic)
	_, err := gone.RequestWith(r.t.Context(), r.client)
	require.NoError(r.t, err)
	made := kmsg.NewPtrCreateTopicsRequest()
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = orders, 1, 1
	made.Topics = append(made.Topics, one)
	answer, err := made.RequestWith(r.t.Context(), r.client)
	require.NoError(r.t, err)
	require.NoError(r.t, kerr.ErrorForCode(answer.Topics[0].ErrorCode))
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.log)
	clear(r.last)
}

// The topic is deleted and created again while a handler is at work. The client ends for one
// reason, which is logged once, and another one reads the new topic from its start: what was due
// for the old one is not committed into it.
func TestTopicRecreated(t *testing.T) {
	eachCommit(t, func(t *testing.T, mode mode, options ...kgo.Opt) {
		r := newRig(t, mode, 1)
		r.early = true // commits of the topic that is gone, which the oracle does not tell apart
		g := newGateway()
		g.deaf = true
		log := &messageLog{}
		var mu sync.Mutex
		gone := 0
		m := r.join(func(ctx context.Context, m *kafkaadapter.Message) error {
			if m.ID == "evt_000005" {
				return g.handle(ctx, m)
			}
			return nil
		}, func(c *kafkaadapter.Config) {
			c.Logger = slog.New(log)
			c.Observer.GroupError = func(err error) {
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, kafkaadapter.ErrTopicRecreated) {
					gone++
				}
			}
		}, options...)
		r.produce(0, 0, 6)
		<-g.inside
		r.replace()
		close(g.open)
		client := r.client
		// a producer keeps to the topic that it knows
		r.client = r.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		client.Close()
		r.produce(0, 100, 3) // fewer than before
		r.eventually(func() (bool, string) {
			info := r.cluster.GroupInfo(group)
			return r.totalEffects() == 9 && info != nil && info.Commits[orders][0].Offset == 3,
				"the new topic is not read"
		})
		m.leave()
		r.once(9)
		mu.Lock()
		// Where a commit by name has come into the new topic, that is told whenever the offset is
		// fetched.
		assert.True(t, gone == 1 || gone > 0 && gone <= 3 && len(options) > 0,
			"told %d times", gone)
		mu.Unlock()
		log.mu.Lock()
		defer log.mu.Unlock()
		assert.LessOrEqual(t, len(log.all), 3, "%v", log.all)
	})
}

// Before OffsetCommit version 10 a commit would be taken for the topic that has the name now:
// nothing of a topic that is gone is committed any more.
func TestNothingIsDueForATopicThatIsGone(t *testing.T) {
	for name, end := range map[string]func(*session){
		"another UUID": func(s *session) { s.topicGone(orders) },
		"unknown for long": func(s *session) {
			s.unknown.persists(orders, time.Now().Add(-topicPatience))
			assert.ErrorIs(t, s.unknownTopic(topicPartition{orders, 0}, kerr.UnknownTopicID),
				kafkaadapter.ErrTopicRecreated)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{engine: &kafkadriver.Engine{}, base: t.Context(), stop: func(error) {}}
			s.commits = newCommits(s)
			for _, topic := range []string{orders, payments} {
				s.commits.begin(topicPartition{topic, 0}, "me")
				s.commits.Mark(topic, 0, 7)
			}
			end(s)
			all, _ := s.commits.unconfirmed()
			assert.Len(t, all, 1)
			assert.Contains(t, all, topicPartition{payments, 0})
		})
	}
}
