package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
)

// operatorCommits sets the group's offset of a partition by hand. The group must be empty.
func (s *scene) operatorCommits(partition int32, offset int64) {
	s.t.Helper()
	admin, err := sarama.NewClusterAdmin(s.cluster.ListenAddrs(), clientConfig())
	require.NoError(s.t, err)
	defer func() { _ = admin.Close() }()
	s.oracle.expect(nil) // this commit is not the adapter's
	defer s.oracle.expect(s.log)
	res, err := admin.AlterConsumerGroupOffsets(sceneGroup,
		map[string]map[int32]sarama.OffsetAndMetadata{
			sceneTopic: {partition: {Offset: offset, LeaderEpoch: -1}},
		}, nil)
	require.NoError(s.t, err)
	require.Zero(s.t, res.Errors[sceneTopic][partition])
}

// The log does not have the committed offset: its start has moved past it, or the offset is beyond
// the end. GroupError gets this error again and again, but not in a hot loop. Nothing is skipped.
// If the start has moved, an operator has to decide about the gap. If the offset is beyond the end,
// no message is missing, and all flavors read the window again, except franz-go, which knows no
// leader epoch of such a commit.
func TestOffsetOutOfRange(t *testing.T) { eachFlavor(t, offsetOutOfRange) }

func offsetOutOfRange(t *testing.T, f flavor) {
	const done, n = 10, 100
	beyond := func(s *scene) { s.operatorCommits(0, 5*n) }
	if strings.HasPrefix(f.name, "franz") {
		t.Run("the commit is beyond the end", func(t *testing.T) {
			waitsForAnOperator(t, f, beyond, done, n)
		})
	} else {
		t.Run("the commit is beyond the end", func(t *testing.T) {
			t.Parallel()
			s := someAreDone(t, f, done, n)
			beyond(s)
			s.oracle.expect(nil) // the oracle does not know commits that go back
			last := s.join(nil)
			eventually(t, 10*time.Second, func() (bool, string) {
				return s.totalEffects() == n, fmt.Sprint(s.totalEffects(), " effects")
			})
			s.wantCommittedToEnd(10 * time.Second)
			last.leave(t)
			require.ErrorIs(t, errors.Join(s.groupErrors...), kafkaadapter.ErrLogCut)
			s.wantNothingLeft()
		})
	}
	t.Run("the log begins after the commit", func(t *testing.T) {
		waitsForAnOperator(t, f, func(s *scene) {
			require.NoError(t, s.cluster.DeleteRecords(sceneTopic, 0, 40))
		}, 40, done+60)
	})
}

// someAreDone returns a scene with n messages, of which the number done have run and are committed.
func someAreDone(t *testing.T, f flavor, done, n int) *scene {
	t.Helper()
	s := f.scene(t, 3, 1).nobodyDies()
	s.produce(numbered(0, 0, done)...)
	first := s.join(nil)
	s.wantCommittedToEnd(10 * time.Second)
	first.leave(t)
	s.produce(numbered(0, done, n-done)...)
	return s
}

func waitsForAnOperator(t *testing.T, f flavor, happen func(*scene), decide int64, effects int) {
	t.Parallel()
	const done, n = 10, 100
	s := someAreDone(t, f, done, n)
	happen(s)
	before := s.committed(0)

	stuck := s.join(nil)
	errs := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.groupErrors)
	}
	eventually(t, 10*time.Second, func() (bool, string) {
		return errs() > 3, fmt.Sprint(errs(), " errors were told")
	})
	assert.Equal(t, done, s.totalEffects(), "effects before anybody has decided")
	assert.Equal(t, before, s.committed(0))
	stuck.leave(t)

	s.operatorCommits(0, decide)
	s.oracle.skip(0, decide)
	last := s.join(nil)
	s.wantCommittedToEnd(10 * time.Second)
	last.leave(t)
	assert.Equal(t, effects, s.totalEffects())
	s.wantNothingLeft()
}

// Compaction leaves holes at the watermark: the commits cross them.
func TestCommittedAcrossCompaction(t *testing.T) { eachFlavor(t, committedAcrossCompaction) }

func committedAcrossCompaction(t *testing.T, f flavor) {
	const keys, rounds = 20, 5
	s := f.sceneOn(t, embeddedNodes(t, 3), 1, map[string]string{"cleanup.policy": "compact"})
	for round := range rounds {
		records := numbered(0, keys*round, keys)
		for i := range records {
			records[i].key = fmt.Sprint("k", i) // each supersedes that of the round before
		}
		s.produce(records...)
	}
	s.cluster.Compact()
	present := readAll(t, s.cluster.ListenAddrs(), sceneTopic, keys*rounds)
	for offset := range s.log[0] {
		if !present[int64(offset)] {
			s.log[0][offset] = "" // a hole
		}
	}
	require.Less(t, len(present), keys*rounds, "nothing was compacted")
	t.Logf("%d of %d messages are left", len(present), keys*rounds)
	s.oracle.expect(s.log)
	m := s.join(nil)
	s.wantAll(10*time.Second, m)
}

// readAll reads partition 0 of a topic up to its end and returns the offsets there.
func readAll(t *testing.T, brokers []string, topic string, end int64) map[int64]bool {
	t.Helper()
	c, err := sarama.NewConsumer(brokers, clientConfig())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	p, err := c.ConsumePartition(topic, 0, sarama.OffsetOldest)
	require.NoError(t, err)
	defer func() { _ = p.Close() }()
	offsets := map[int64]bool{}
	for {
		m := waitFor(t, p.Messages(), "the topic does not end")
		offsets[m.Offset] = true
		if m.Offset == end-1 {
			return offsets
		}
	}
}

// A topic is deleted and made again: a message at an old position is new, unless its id says that
// it is not.
func TestTopicIsMadeAgain(t *testing.T) { eachFlavor(t, topicIsMadeAgain) }

func topicIsMadeAgain(t *testing.T, f flavor) {
	const n = 50
	s := f.scene(t, 3, 1).nobodyDies()
	s.produce(numbered(0, 0, n)...)
	first := s.join(nil)
	s.wantCommittedToEnd(10 * time.Second)
	first.leave(t)
	require.NoError(t, s.cluster.DeleteTopic(sceneTopic))
	require.NoError(t, s.cluster.CreateTopic(sceneTopic, 1, nil))
	s.forget()
	s.produce(numbered(0, n/2, n)...) // half of them are known
	second := s.join(nil)
	s.wantCommittedToEnd(10 * time.Second)
	second.leave(t)
	for i := range n + n/2 {
		assert.Equal(t, 1, s.effectsOf(idOf(i)), "effects of %s", idOf(i))
	}
	s.wantRecorded()
	s.wantNothingLeft()
}

// forget makes the scene begin with an empty log: the topic is a new one.
func (s *scene) forget() {
	s.log, s.sent = map[int32][]string{}, map[int32][]string{}
	s.oracle.restart()
	s.producer = nil
}

// Partitions are added while a member works: it takes them, and an id that is sent again to its
// key's new partition is still a duplicate.
func TestPartitionsAreAdded(t *testing.T) { eachFlavor(t, partitionsAreAdded) }

func partitionsAreAdded(t *testing.T, f flavor) {
	const n = 100
	s := f.scene(t, 3, 1).nobodyDies()
	s.produce(numbered(0, 0, n)...)
	m := s.join(func(ctx context.Context, _ *kafkaadapter.Message) error {
		return backoff.Sleep(ctx, 5*time.Millisecond)
	},
		func(mc *memberConfig) { mc.refresh = 200 * time.Millisecond })
	eventually(t, 10*time.Second, func() (bool, string) {
		return s.totalEffects() > 10, "no progress"
	})
	admin, err := sarama.NewClusterAdmin(s.cluster.ListenAddrs(), clientConfig())
	require.NoError(t, err)
	defer func() { _ = admin.Close() }()
	require.NoError(t, admin.CreatePartitions(sceneTopic, 3, nil, false))
	s.producer = nil // it knows one partition
	for p := range int32(2) {
		s.produce(numbered(p+1, 0, n/2)...)               // duplicates
		s.produce(numbered(p+1, 1000*(int(p)+1), n/2)...) // and new ones
	}
	s.wantAll(20*time.Second, m)
}
