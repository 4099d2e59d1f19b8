package kafkafranz

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

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

// A topic with another UUID is another topic. A failed look does not count. Brokers that give a
// topic no UUID are reported once.
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

// A share group takes a topic for deleted if it was there before, and two looks in a row miss it.
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

// persists returns true when errors about a topic have lasted for three seconds. After ten seconds
// without such an error it counts anew.
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

// A partition that fails is not fetched for a while, even if rest is called twice or the partition
// is to be paused meanwhile. It is fetched again after a second at the latest.
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

// Before version 10 an OffsetCommit is for the topic that has the name now. So no offset of a topic
// that is gone is committed any more.
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
