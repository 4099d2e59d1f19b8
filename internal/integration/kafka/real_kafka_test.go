package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
)

// realBrokers are Apache Kafka, with a topic and a group of the scene's own.
type realBrokers struct {
	t      *testing.T
	server *servertest.Server
	name   string

	mu    sync.Mutex
	admin sarama.ClusterAdmin // nil after a failure
}

func (b *realBrokers) addrs() []string { return b.server.Addrs }
func (b *realBrokers) topic() string   { return b.name }
func (b *realBrokers) group() string   { return b.name + "-group" }

func (b *realBrokers) committed(partition int32) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.admin == nil {
		admin, err := sarama.NewClusterAdmin(b.addrs(), clientConfig())
		if err != nil {
			return 0
		}
		b.admin = admin
	}
	offsets, err := b.admin.ListConsumerGroupOffsets(b.group(),
		map[string][]int32{b.topic(): {partition}})
	if err == nil {
		if block := offsets.GetBlock(b.topic(), partition); block != nil &&
			block.Err == sarama.ErrNoError {
			return max(0, block.Offset)
		}
	}
	b.close()
	return 0
}

func (b *realBrokers) close() {
	if b.admin != nil {
		_ = b.admin.Close()
		b.admin = nil
	}
}

// realScene is a scene on a server. The oracle sees the commits that its members report.
func (f flavor) realScene(t *testing.T, server *servertest.Server, partitions int32,
	replicas int16) *scene {
	t.Helper()
	at := &realBrokers{t: t, server: server, name: strings.ReplaceAll(f.name, " ", "-")}
	t.Cleanup(at.close)
	createTopic(t, at.addrs(), at.topic(), partitions, replicas)
	return f.sceneAt(t, at)
}

// watched lets the scene's oracle see the member's commits.
func (s *scene) watched(mc *memberConfig) {
	mc.Observer.Committing = func(_ string, partition int32, offset int64) {
		s.oracle.commit(0, partition, offset)
	}
}

const realPartitions = 3

// realStage is something that happens to the brokers while members of every flavor work.
type realStage struct {
	name string
	do   func(*servertest.Server)
}

// realScenes plays the stages. It sends messages before and after each stage, and then waits until
// all of them are committed.
func realScenes(t *testing.T, server *servertest.Server, replicas int16, stages []realStage) {
	t.Helper()
	var scenes []*scene
	var members [][]*member
	for _, f := range slices.Concat(flavors, []flavor{segmentio}) {
		s := f.realScene(t, server, realPartitions, replicas)
		slow := func(ctx context.Context, _ *kafkaadapter.Message) error {
			return backoff.Sleep(ctx, 20*time.Millisecond)
		}
		// No member dies, so the lease is long: it must not lapse on a slow machine.
		few := func(mc *memberConfig) { mc.Tuning.Workers, mc.lease = 2, 30*time.Second }
		scenes = append(scenes, s)
		members = append(members,
			[]*member{s.join(slow, few, s.watched), s.join(slow, few, s.watched)})
	}
	for n, stage := range stages {
		began := time.Now()
		for _, s := range scenes {
			before := s.totalEffects()
			s.produceReal(2 * n)
			eventually(t, 30*time.Second, func() (bool, string) {
				return s.totalEffects() > before, "no progress before: " + stage.name
			})
		}
		stage.do(server)
		for _, s := range scenes {
			s.produceReal(2*n + 1)
		}
		for _, s := range scenes {
			s.wantCommittedToEnd(40 * time.Second)
		}
		t.Logf("%s: committed to the end after %v", stage.name,
			time.Since(began).Round(100*time.Millisecond))
	}
	for _, group := range members {
		for _, m := range group {
			m.leave(t)
		}
	}
	for _, s := range scenes {
		s.wantEffects()
		s.want("commits ahead", s.oracle.violations)
	}
}

func (s *scene) produceReal(round int) {
	for p := range int32(realPartitions) {
		s.produce(numbered(p, 100_000*int(p)+100*round, 100)...)
	}
}

// A single broker is killed with SIGKILL and started again, and stopped for longer than
// the group's session.
func TestRealKafkaOneNode(t *testing.T) {
	t.Parallel()
	server := servertest.Private(t, servertest.KindKafka1)
	t.Run("where the embedded broker differs", func(t *testing.T) { realDifferences(t, server) })
	realScenes(t, server, 1, []realStage{
		{"killed", func(s *servertest.Server) {
			s.Kill(1)
			s.Start(1)
		}},
		{"stopped", func(s *servertest.Server) {
			s.Stop(1)
			<-time.After(3 * time.Second)
			s.Cont(1)
		}},
	})
}

// One of three nodes is killed, and one stopped, while the others go on; then two of them
// are killed, so that nothing has its in-sync replicas any more.
func TestRealKafkaThreeNodes(t *testing.T) {
	t.Parallel()
	server := servertest.Private(t, servertest.KindKafka3)
	t.Run("dead letters without in-sync replicas", func(t *testing.T) {
		deadLettersWithoutReplicas(t, server)
	})
	realScenes(t, server, 3, []realStage{
		{"one is killed", func(s *servertest.Server) { s.Kill(1) }},
		{"it is back, and another one stopped until its work has moved",
			func(s *servertest.Server) {
				s.Start(1)
				s.Stop(2)
				<-time.After(5 * time.Second)
				s.Cont(2)
			}},
		{"two are killed, and back", func(s *servertest.Server) {
			s.Kill(1)
			s.Kill(3)
			<-time.After(2 * time.Second)
			s.Start(1)
			s.Start(3)
		}},
	})
}

// A dead-letter topic has lost the in-sync replicas that it asks for: the letter is not
// taken, and its message not committed, until they are back.
func deadLettersWithoutReplicas(t *testing.T, server *servertest.Server) {
	const n, poison = 10, 4
	s := eager.realScene(t, server, 1, 3)
	dead, all := s.topic()+"-dead", "3"
	admin, err := sarama.NewClusterAdmin(server.Addrs, adminConfig())
	require.NoError(t, err)
	defer func() { _ = admin.Close() }()
	detail := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 3,
		ConfigEntries: map[string]*string{"min.insync.replicas": &all}}
	require.NoError(t, admin.CreateTopic(dead, detail, false))
	s.produce(numbered(0, 0, n)...)
	server.Kill(3)
	m := s.join(func(_ context.Context, m *kafkaadapter.Message) error {
		if m.Offset == poison {
			return dedup.Permanent(errors.New("cannot be charged"))
		}
		return nil
	}, func(mc *memberConfig) { mc.deadTopic = dead })
	eventually(t, 30*time.Second, func() (bool, string) {
		return s.totalEffects() == n-1 && s.committed(0) == poison,
			fmt.Sprint(s.totalEffects(), " effects, committed to ", s.committed(0))
	})
	at := settle(t, func() int64 { return s.committed(0) })
	assert.Equal(t, int64(poison), at, "committed past the message whose letter was not kept")
	server.Start(3)
	s.wantCommittedToEnd(30 * time.Second)
	readOne(t, server.Addrs, dead)
	m.leave(t)
	s.wantRecorded()
	s.wantNothingLeft()
}

// realDifferences checks the answers in which the embedded broker is known to differ.
func realDifferences(t *testing.T, server *servertest.Server) {
	at := &realBrokers{t: t, server: server, name: "differences"}
	createTopic(t, at.addrs(), at.topic(), 1, 1)
	admin, err := sarama.NewClusterAdmin(at.addrs(), adminConfig())
	require.NoError(t, err)
	defer func() { _ = admin.Close() }()
	// A group that nobody knows has no offset, which is not an error.
	offsets, err := admin.ListConsumerGroupOffsets("nobody", map[string][]int32{at.topic(): {0}})
	require.NoError(t, err)
	require.Equal(t, sarama.ErrNoError, offsets.Err)
	block := offsets.GetBlock(at.topic(), 0)
	require.NotNil(t, block)
	assert.Equal(t, sarama.ErrNoError, block.Err)
	assert.Equal(t, int64(-1), block.Offset, "the offset of a new group")
	// The metadata of a commit has a limit of 4096 bytes.
	for size, want := range map[int]sarama.KError{4096: sarama.ErrNoError,
		4097: sarama.ErrOffsetMetadataTooLarge} {
		offset := sarama.OffsetAndMetadata{Offset: 0, LeaderEpoch: -1,
			Metadata: strings.Repeat("x", size)}
		res, err := admin.AlterConsumerGroupOffsets(at.group(),
			map[string]map[int32]sarama.OffsetAndMetadata{at.topic(): {0: offset}}, nil)
		require.NoError(t, err)
		assert.Equal(t, want, res.Errors[at.topic()][0], "%d bytes of metadata", size)
	}
}
