package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// sameTime is the timestamp of all messages that produceBare sends.
var sameTime = time.UnixMilli(1_700_000_000_000)

func newAdmin(t *testing.T, s *scene) sarama.ClusterAdmin {
	t.Helper()
	admin, err := sarama.NewClusterAdmin(s.cluster.ListenAddrs(), clientConfig())
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	return admin
}

// produceBare sends n messages without an id, all with the same timestamp.
func produceBare(t *testing.T, s *scene, prefix string, n int) {
	t.Helper()
	p, err := sarama.NewSyncProducer(s.cluster.ListenAddrs(), clientConfig())
	require.NoError(t, err)
	defer func() { _ = p.Close() }()
	var messages []*sarama.ProducerMessage
	for i := range n {
		messages = append(messages, &sarama.ProducerMessage{Topic: sceneTopic,
			Value: sarama.StringEncoder(fmt.Sprint(prefix, i)), Timestamp: sameTime})
	}
	require.NoError(t, p.SendMessages(messages))
}

// A topic is deleted and created again. Other messages are at the same positions then, and all of
// them run. Messages that are only redelivered do not run again.
func TestPositionsOfARecreatedTopic(t *testing.T) { eachFlavor(t, positionsOfARecreatedTopic) }

func positionsOfARecreatedTopic(t *testing.T, f flavor) {
	const n = 50
	s := f.scene(t, 3, 1).nobodyDies()
	admin := newAdmin(t, s)
	runs := map[string]int{}
	missing := 0
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		s.note(func() { runs[string(m.Value)]++ })
		return nil
	}
	consume := func() {
		t.Helper()
		m := s.join(handler, func(mc *memberConfig) {
			mc.Positions = true
			mc.Observer.MissingID = func(*kafkaadapter.Message) { s.note(func() { missing++ }) }
		})
		eventually(t, 15*time.Second, func() (bool, string) {
			return s.committed(0) == n, fmt.Sprint("committed ", s.committed(0))
		})
		m.leave(t)
	}
	produceBare(t, s, "old", n)
	consume()
	again := map[string]map[int32]sarama.OffsetAndMetadata{sceneTopic: {0: {Offset: 0}}}
	_, err := admin.AlterConsumerGroupOffsets(sceneGroup, again, nil)
	require.NoError(t, err)
	consume()
	require.NoError(t, admin.DeleteTopic(sceneTopic))
	require.NoError(t, admin.CreateTopic(sceneTopic,
		&sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	produceBare(t, s, "new", n)
	consume()

	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Len(t, runs, 2*n, "messages that ran")
	assert.Equal(t, 1, slices.Max(slices.Collect(maps.Values(runs))), "runs of a message")
	assert.Equal(t, 3*n, missing, "messages without an id")
}

// A header of nearly a megabyte is not accepted as an id. The message goes to the dead letters with
// this header, but without a second copy of it: the topic would not take that, and the messages
// behind it would wait forever.
func TestHugeIDIsParked(t *testing.T) { eachFlavor(t, hugeIDIsParked) }

func hugeIDIsParked(t *testing.T, f flavor) {
	const deadTopic = sceneTopic + ".dead"
	s := f.scene(t, 1, 1).nobodyDies()
	createTopic(t, s.cluster.ListenAddrs(), deadTopic, 1, 1)
	s.oracle.expect(nil)
	huge := strings.Repeat("x", 900<<10)
	records := []record{{id: idOf(0), key: "k"}, {id: huge, key: "k"}, {id: idOf(1), key: "k"}}
	produceAt(t, s.cluster.ListenAddrs(), sceneTopic, s.sent, records)
	m := s.join(nil, func(mc *memberConfig) { mc.deadTopic = deadTopic })
	eventually(t, 15*time.Second, func() (bool, string) {
		return s.committed(0) == 3, fmt.Sprint("committed ", s.committed(0))
	})
	m.leave(t)
	letter := readOne(t, s.cluster.ListenAddrs(), deadTopic)
	id, own := letter.Header("message-id"), letter.Header(kafkaadapter.HeaderID)
	why := letter.Header(kafkaadapter.HeaderError)
	assert.True(t, id == huge && own == "", "headers of %d and %d bytes", len(id), len(own))
	assert.Contains(t, why, "at most 255 are allowed")
	assert.Equal(t, 1, s.effectsOf(idOf(0)), "effects of a neighbor")
	assert.Equal(t, 1, s.effectsOf(idOf(1)), "effects of a neighbor")
}

// CheckWindow reads what brokers answer.
func TestCheckWindow(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1, 2)
	client, err := sarama.NewClient(s.addrs(), clientConfig())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	admin := newAdmin(t, s)
	check := func(window time.Duration) []*kafkaadapter.WindowError {
		t.Helper()
		retentions, err1 := kafkasarama.Retentions(admin, sceneTopic)
		lags, err2 := kafkasarama.Lags(client, sceneGroup, sceneTopic)
		require.NoError(t, errors.Join(err1, err2))
		return kafkaadapter.CheckWindow(window, retentions, lags)
	}
	assert.Empty(t, check(8*24*time.Hour), "Kafka's default is 7 days")
	produceBare(t, s, "old", 5)
	exceeded := check(24 * time.Hour)
	require.Len(t, exceeded, 1)
	require.Equal(t, 7*24*time.Hour, exceeded[0].Retention)
	require.GreaterOrEqual(t, exceeded[0].Lag, time.Since(sameTime)-time.Minute)
	t.Log(exceeded[0])
	keeps := "-1"
	require.NoError(t, admin.AlterConfig(sarama.TopicResource, sceneTopic,
		map[string]*string{"retention.ms": &keeps}, false))
	m := s.join(nil, func(mc *memberConfig) {
		mc.Park = func(context.Context, *kafkaadapter.Message, error) error { return nil }
		mc.Allow.NoID = true // what is produced here has none
	})
	eventually(t, 10*time.Second, func() (bool, string) {
		return s.committed(0) == 5, "nothing is committed"
	})
	m.leave(t)
	exceeded = check(10 * 365 * 24 * time.Hour)
	require.Len(t, exceeded, 1)
	assert.Negative(t, exceeded[0].Retention)
	assert.Zero(t, exceeded[0].Lag)
}
