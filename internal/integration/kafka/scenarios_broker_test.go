package kafka_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
)

// The only broker goes away and comes back with what it had, while a member works.
func TestBrokerRestarts(t *testing.T) { eachFlavor(t, brokerRestarts) }

func brokerRestarts(t *testing.T, f flavor) {
	const n = 1000
	dir := t.TempDir()
	life := embeddedNodes(t, 1, kfake.DataDir(dir), kfake.Ports(0))
	_, port, err := net.SplitHostPort(life.ListenAddrs()[0])
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	s := f.sceneOn(t, life, 2, nil)
	s.produce(numbered(0, 0, n/2)...)
	s.produce(numbered(1, n, n/2)...)
	m := s.join(func(ctx context.Context, _ *kafkaadapter.Message) error {
		return backoff.Sleep(ctx, 20*time.Millisecond)
	},
		func(mc *memberConfig) { mc.Tuning.Workers = 8 })
	for round := 1; round <= 2; round++ {
		eventually(t, 15*time.Second, func() (bool, string) {
			return s.totalEffects() > n/4*round, fmt.Sprint(s.totalEffects(), " effects")
		})
		s.cluster.Close()
		s.cluster = embeddedNodes(t, 1, kfake.DataDir(dir), kfake.Ports(number))
		s.brokers = fakeBrokers{s.cluster}
		s.oracle.attach(s.cluster)
	}
	s.wantAll(30*time.Second, m)
}

// Nodes leave, one of them the group's coordinator; leaders move; the connections of a
// member break; fetches and heartbeats fail.
func TestBrokersInTrouble(t *testing.T) { eachFlavor(t, brokersInTrouble) }

func brokersInTrouble(t *testing.T, f flavor) {
	s := f.scene(t, 3, 4)
	a, b := s.join(brief), s.join(brief)
	s.wantMembers(2)
	for round, trouble := range []func(){
		s.cluster.ShufflePartitionLeaders,
		func() { s.move(0, 1) },
		a.dialer.hiccup,
		func() { s.fault(kmsg.Fetch, kerr.NotLeaderForPartition, 5) },
		func() { s.fault(kmsg.Heartbeat, kerr.NotCoordinator, 2) },
		func() { s.fault(kmsg.Heartbeat, kerr.UnknownMemberID, 1) },
		b.dialer.hiccup,
		func() { s.fault(kmsg.Fetch, kerr.UnknownServerError, 3) },
		func() { s.remove(s.cluster.CoordinatorFor(sceneGroup)) },
		s.cluster.RehashCoordinators,
	} {
		before := s.totalEffects()
		for p := range int32(4) {
			s.produce(numbered(p, 10_000*int(p)+100*round, 100)...)
		}
		trouble()
		eventually(t, 20*time.Second, func() (bool, string) {
			return s.totalEffects() >= before+100,
				fmt.Sprintf("trouble %d: %d effects more", round, s.totalEffects()-before)
		})
	}
	s.wantAll(30*time.Second, a, b)
}

// brief is a handler that takes a moment.
func brief(ctx context.Context, _ *kafkaadapter.Message) error {
	return backoff.Sleep(ctx, 2*time.Millisecond)
}

// move moves a partition to another broker.
func (s *scene) move(partition, node int32) {
	s.t.Helper()
	require.NoError(s.t, s.cluster.MoveTopicPartition(sceneTopic, partition, node))
}

// remove takes a broker away.
func (s *scene) remove(node int32) {
	s.t.Helper()
	require.NoError(s.t, s.cluster.RemoveNode(node))
}

// fault makes the next count requests of a kind fail.
func (s *scene) fault(key kmsg.Key, err *kerr.Error, count int) *kfake.FaultHandle {
	return s.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: err, Count: count})
}

// A commit takes long, at a broker that is the group's coordinator and leads its
// partition: no handler waits for it.
func TestHandlersDoNotWaitForCommits(t *testing.T) { eachFlavor(t, handlersDoNotWaitForCommits) }

func handlersDoNotWaitForCommits(t *testing.T, f flavor) {
	const n = 300
	s := f.scene(t, 1, 1).nobodyDies()
	s.produce(keyed(numbered(0, 0, n), "k")...) // one after the other
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		s.cluster.KeepControl()
		s.cluster.SleepControl(func() {
			once.Do(func() { close(held) })
			<-release
		})
		return nil, nil, false
	})
	m := s.join(func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.Offset == n/2 { // or all effects could have happened before the commit came
			select {
			case <-held:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return brief(ctx, m)
	})
	waitFor(t, held, "nothing is committed")
	eventually(t, 10*time.Second, func() (bool, string) {
		return s.totalEffects() == n, fmt.Sprint(s.totalEffects(), " effects")
	})
	close(release)
	s.wantAll(10*time.Second, m)
}

// keyed gives the records one key.
func keyed(records []record, key string) []record {
	for i := range records {
		records[i].key = key
	}
	return records
}
