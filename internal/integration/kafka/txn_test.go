package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter/txn"
)

// transactional are the requests that a transaction is made of.
var transactional = []kmsg.Key{kmsg.AddPartitionsToTxn, kmsg.Produce, kmsg.AddOffsetsToTxn,
	kmsg.TxnOffsetCommit, kmsg.EndTxn}

// cooperatively makes a member rebalance in the cooperative way.
func cooperatively(pc *processorConfig) {
	pc.consumer.Consumer.Group.Rebalance.GroupStrategies =
		[]sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
}

var streamProtocols = map[string]func(*processorConfig){"eager": func(*processorConfig) {},
	"cooperative": cooperatively}

// Members come, go and crash while transactions are aborted, producers fenced and
// coordinators moved: a reader sees every output once, and in order.
func TestStreamedThroughRebalances(t *testing.T) {
	for name, protocol := range streamProtocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 4000
			c := embedded(t)
			s := newTxnFixture(t, c.ListenAddrs(), "", 4)
			s.produce(n)
			var faults []kfake.Fault
			for key, err := range map[kmsg.Key]*kerr.Error{
				kmsg.Produce:         kerr.TransactionAbortable,
				kmsg.TxnOffsetCommit: kerr.IllegalGeneration,
				kmsg.AddOffsetsToTxn: kerr.ProducerFenced, kmsg.EndTxn: kerr.InvalidProducerEpoch,
			} {
				faults = append(faults, kfake.Fault{Keys: []kmsg.Key{key}, Err: err, Count: -1,
					When: func(kmsg.Request) bool { return rand.IntN(40) == 0 }})
			}
			weather := c.Fault(faults...)
			first := s.join(protocol)
			s.wantCommitted(n/10, 30*time.Second)
			second := s.join(protocol)
			s.wantCommitted(2*n/10, 30*time.Second)
			third := s.join(protocol)
			c.ShufflePartitionLeaders()
			s.wantCommitted(4*n/10, 30*time.Second)
			second.leave(t)
			c.RehashCoordinators()
			s.wantCommitted(6*n/10, 30*time.Second)
			third.crash()
			s.wantCommittedToEnd(60 * time.Second)
			first.leave(t)
			weather.Remove()
			s.wantOutputOnce()
			t.Log(s.failures())
		})
	}
}

// A member dies before or after any request of a transaction. Readers see all offsets and outputs
// of its transaction or none of them, even before another member takes over.
func TestStreamedCrashInATransaction(t *testing.T) {
	how := map[string]decision{"before": cutHere, "after": loseReply}
	for protocol, rebalance := range streamProtocols {
		for when, v := range how {
			for _, key := range transactional {
				t.Run(fmt.Sprint(protocol, " ", when, " ", key.Name()), func(t *testing.T) {
					t.Parallel()
					s := newTxnFixture(t, embeddedNodes(t, 1).ListenAddrs(), "", 2)
					s.produce(400)
					victim := s.join(rebalance, func(pc *processorConfig) {
						pc.producerNet.dieAt(int16(key), 7, v)
					})
					select {
					case <-victim.producerNet.died:
					case <-time.After(20 * time.Second):
						t.Fatal("the request was not sent")
					}
					victim.crash()
					s.wantOutputOnce() // waits for the transactions that are left open
					left, err := s.positions()
					require.NoError(t, err)
					survivor := s.join(rebalance)
					s.wantCommittedToEnd(30 * time.Second)
					survivor.leave(t)
					s.wantOutputOnce()
					t.Logf("the victim left %v", left)
				})
			}
		}
	}
}

// The answer to a commit is lost, and sarama gives up. Whether the commit was made or not, the same
// session asks for the offset, continues there, and processes nothing twice.
func TestStreamedCommitInDoubt(t *testing.T) {
	for _, how := range []struct {
		name string
		v    decision
	}{{"not made", cutHere}, {"made", loseReply}} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			const n = 400
			s := newTxnFixture(t, embeddedNodes(t, 1).ListenAddrs(), "", 1)
			s.produce(n)
			var ends, sessions, resumed atomic.Int64
			m := s.join(func(pc *processorConfig) {
				pc.txn.Client.Producer.Transaction.Retry.Max = 1
				pc.txn.Observer.Resumed = func(string, int32, int64) { resumed.Add(1) }
				pc.txn.Observer.Revoked = func(string, int32, bool) { sessions.Add(1) }
			})
			m.producerNet.tap(func(key int16) decision {
				if key != int16(kmsg.EndTxn) {
					return pass
				}
				// All attempts at every fifth commit.
				if k := ends.Add(1) % 10; k == 5 || k == 6 {
					return how.v
				}
				return pass
			})
			s.wantCommittedToEnd(30 * time.Second)
			assert.GreaterOrEqual(t, resumed.Load(), int64(3), "producers")
			assert.Zero(t, sessions.Load(), "sessions that have ended")
			m.leave(t)
			s.wantOutputOnce()
			assert.Contains(t, s.failures(), "txn: commit: ", "no commit was in doubt")
		})
	}
}

// A former owner comes back when another member has done its work. The generation alone fences the
// former owner, and so does the transactional id.
func TestStreamedZombie(t *testing.T) {
	for protocol, rebalance := range streamProtocols {
		for _, row := range []struct {
			name, prefix string // of the zombie
			want         string
		}{
			{"by its generation", "another",
				"The provided member is not known in the current generation"},
			{"by its transactional id", "", "txn: produce: "},
		} {
			t.Run(protocol+" "+row.name, func(t *testing.T) {
				t.Parallel()
				fenceZombie(t, rebalance, row.prefix, row.want)
			})
		}
	}
}

// outlast gives a member that loses its partition more time than its heir takes on a busy machine.
// A handler that outlives Drain is given up, and the broker would get nothing from it.
func outlast(pc *processorConfig) {
	pc.txn.Drain = 50 * time.Second
	pc.consumer.Consumer.Group.Rebalance.Timeout = time.Minute
}

func fenceZombie(t *testing.T, rebalance func(*processorConfig), prefix, want string) {
	s := newTxnFixture(t, embeddedNodes(t, 1).ListenAddrs(), "", 1)
	s.produce(100)
	working, release := make(chan struct{}), make(chan struct{})
	zombie := s.join(rebalance, func(pc *processorConfig) {
		pc.txn.IDPrefix = prefix
		outlast(pc)
		holdSecondRun(pc.txn, working, release)
	})
	<-working
	zombie.net.kill() // its heartbeats; its producer stays connected
	heir := s.join(rebalance)
	s.wantCommittedToEnd(20 * time.Second)
	close(release)
	eventually(t, 10*time.Second, func() (bool, string) {
		return strings.Contains(s.failures(), want), s.failures()
	})
	zombie.net.revive()
	zombie.leave(t)
	heir.leave(t)
	s.wantOutputOnce()
	s.wantCommittedToEnd(time.Second)
	t.Log(s.failures())
}

// Another producer takes a live member's transactional id. The member takes it back, because it is
// still in its group.
func TestStreamedFencedByID(t *testing.T) {
	t.Parallel()
	const n = 2000
	s := newTxnFixture(t, embeddedNodes(t, 1).ListenAddrs(), "", 1)
	s.produce(n)
	var taken atomic.Int64 // times
	m := s.join(func(pc *processorConfig) {
		inner := pc.txn.Handler
		pc.txn.Handler = func(ctx context.Context,
			batch []*sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
			// there is still work after each time the id is taken
			for batch[len(batch)-1].Offset >= (taken.Load()+1)*n/6 {
				if err := backoff.Sleep(ctx, 5*time.Millisecond); err != nil {
					return nil, err
				}
			}
			return inner(ctx, batch)
		}
	})
	for i := range int64(5) {
		s.wantCommitted(i*n/10, 20*time.Second)
		cfg := clientConfig()
		cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
		cfg.Producer.Transaction.ID = "onceward/" + s.group + "/" + s.in + "/0"
		other, err := sarama.NewSyncProducer(s.brokers, cfg)
		require.NoError(t, err)
		_ = other.Close()
		taken.Add(1)
	}
	s.wantCommittedToEnd(30 * time.Second)
	m.leave(t)
	s.wantOutputOnce()
	assert.NotEmpty(t, s.failures(), "nobody was fenced")
	t.Log(s.failures())
}

// A message that cannot be processed is in the dead-letter topic once, and nowhere else.
func TestStreamedDeadLetters(t *testing.T) {
	t.Parallel()
	const n = 300
	c := embeddedNodes(t, 1)
	s := newTxnFixture(t, c.ListenAddrs(), "", 2)
	s.produce(n)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.InvalidProducerEpoch, Count: -1,
		When: func(kmsg.Request) bool { return rand.IntN(10) == 0 }})
	m := s.join(func(pc *processorConfig) {
		if oneOutputPerBatch {
			pc.txn.BatchMax = 1
		}
		// No process dies here, and a busy machine needs seconds for a transaction.
		pc.consumer.Consumer.Group.Session.Timeout = time.Minute
		pc.txn.TransactionTimeout = time.Minute
		pc.txn.Handler = txn.PerMessage(func(_ context.Context,
			m *sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
			switch m.Offset % 50 {
			case 7:
				return nil, dedup.Permanent(errors.New("never"))
			case 30: // larger than the client sends
				big := s.stream(m)
				big.Value = sarama.ByteEncoder(make([]byte, 2<<20))
				return []*sarama.ProducerMessage{big}, nil
			}
			return []*sarama.ProducerMessage{s.stream(m)}, nil
		})
		pc.txn.DeadLetter = func(m *sarama.ConsumerMessage, _ error) *sarama.ProducerMessage {
			letter := s.stream(m)
			letter.Topic = s.dead
			return letter
		}
	})
	s.wantCommittedToEnd(30 * time.Second)
	m.leave(t)
	out, dead := s.read(s.out), s.read(s.dead)
	for p := range s.partitions {
		for offset := range int64(len(s.sent[p])) {
			topic, other := out, dead
			if k := offset % 50; k == 7 || k == 30 {
				topic, other = dead, out
			}
			want := fmt.Sprintf("%d@%d", p, offset)
			a := strings.Count(" "+strings.Join(topic[p], " ")+" ", " "+want+" ")
			b := strings.Count(" "+strings.Join(other[p], " ")+" ", " "+want+" ")
			assert.Equal(t, 1, a, "%s where it belongs", want)
			assert.Zero(t, b, "%s elsewhere", want)
		}
	}
}

// A second process joins under a static member's instance id, while the first one is inside a
// handler. The second does the work, and the first is fenced by its instance id.
func TestStreamedStaticMember(t *testing.T) {
	t.Parallel()
	s := newTxnFixture(t, embeddedNodes(t, 1).ListenAddrs(), "", 1)
	s.produce(100)
	static := func(pc *processorConfig) {
		pc.consumer.Consumer.Group.InstanceId = "first"
		// The old member must fail by its instance id. With join's timeout of a second, its
		// transaction would end first on a busy machine.
		pc.consumer.Consumer.Group.Session.Timeout = time.Minute
		pc.txn.TransactionTimeout = time.Minute
		pc.txn.Client.Consumer.Group.InstanceId = "first"
	}
	working, release := make(chan struct{}), make(chan struct{})
	old := s.join(static, func(pc *processorConfig) {
		pc.txn.IDPrefix = "another"
		outlast(pc)
		holdSecondRun(pc.txn, working, release)
	})
	<-working
	heir := s.join(static)
	s.wantCommittedToEnd(20 * time.Second)
	close(release)
	eventually(t, 10*time.Second, func() (bool, string) {
		return strings.Contains(s.failures(), "group.instance.id"), s.failures()
	})
	heir.leave(t)
	old.crash()
	s.wantOutputOnce()
	t.Log(s.failures())
}

// holdSecondRun keeps a handler in its second run, even if the partition is revoked.
func holdSecondRun(c *txn.Config, working chan<- struct{}, release <-chan struct{}) {
	inner := c.Handler
	var runs atomic.Int64
	c.Handler = func(ctx context.Context,
		batch []*sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
		if runs.Add(1) == 2 {
			close(working)
			<-release
		}
		return inner(ctx, batch)
	}
}

// Without dead letters Run stops, with every message before the bad one committed.
func TestStreamedStops(t *testing.T) {
	t.Parallel()
	s := newTxnFixture(t, embeddedNodes(t, 1).ListenAddrs(), "", 1)
	s.produce(100)
	m := s.join(func(pc *processorConfig) {
		inner := pc.txn.Handler
		pc.txn.Handler = func(ctx context.Context,
			batch []*sarama.ConsumerMessage) ([]*sarama.ProducerMessage, error) {
			if batch[0].Offset <= 70 && batch[len(batch)-1].Offset >= 70 {
				return nil, dedup.Permanent(errors.New("never"))
			}
			return inner(ctx, batch)
		}
	})
	defer func() { _ = m.group.Close() }()
	var stop *txn.UnprocessableError
	select {
	case err := <-m.done:
		if assert.ErrorAs(t, err, &stop) {
			assert.True(t, stop.Topic == s.in && stop.Partition == 0 && stop.Offset == 70, err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Run goes on")
	}
	s.wantOutputOnce()
	at, err := s.positions()
	require.NoError(t, err)
	assert.Equal(t, int64(70), at[0], "what is committed")
}

// Input that was written in transactions has gaps, and what was aborted is not processed.
func TestStreamedFromTransactions(t *testing.T) {
	t.Parallel()
	s := newTxnFixture(t, embeddedNodes(t, 1).ListenAddrs(), "", 1)
	cfg := clientConfig()
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests, cfg.Producer.Transaction.ID = true,
		1, "upstream"
	p, err := sarama.NewSyncProducer(s.brokers, cfg)
	require.NoError(t, err)
	defer func() { _ = p.Close() }()
	var want []string
	for i := range 6 {
		require.NoError(t, p.BeginTxn())
		var offsets []string
		for range 5 {
			_, offset, err := p.SendMessage(&sarama.ProducerMessage{Topic: s.in,
				Value: sarama.StringEncoder("v")})
			require.NoError(t, err)
			offsets = append(offsets, fmt.Sprint("0@", offset))
		}
		end := p.AbortTxn
		if i%2 == 0 {
			end, want = p.CommitTxn, append(want, offsets...)
		}
		require.NoError(t, end())
	}
	m := s.join()
	// 24 to 28 are the last committed, and a marker follows every five
	s.wantCommitted(29, 20*time.Second)
	m.leave(t)
	assert.Equal(t, strings.Join(want, " "), strings.Join(s.read(s.out)[0], " "), "outputs")
}

// Against Apache Kafka: members come, leave and crash in a transaction.
func TestStreamedOnApacheKafka(t *testing.T) {
	const n = 2000
	brokers := servertest.Kafka(t)
	s := newTxnFixture(t, brokers, strings.ReplaceAll(servertest.Prefix(t), ":", "-"), 4)
	s.produce(n)
	slow := func(pc *processorConfig) { // within a real broker's limits
		pc.consumer.Consumer.Group.Session.Timeout = 6 * time.Second
		pc.consumer.Consumer.Group.Heartbeat.Interval = time.Second
		pc.consumer.Consumer.Group.Rebalance.Timeout = 10 * time.Second
		pc.txn.TransactionTimeout = 5 * time.Second
	}
	victim := s.join(slow)
	s.wantCommitted(n/10, 60*time.Second)
	survivor := s.join(slow)
	s.wantCommitted(2*n/10, 60*time.Second)
	victim.producerNet.dieAt(int16(kmsg.EndTxn), 2, loseReply)
	s.produce(n) // so that there is something left to do
	select {
	case <-victim.producerNet.died:
	case <-time.After(30 * time.Second):
		t.Fatal("the victim ended no transaction")
	}
	victim.crash()
	s.wantCommittedToEnd(90 * time.Second)
	survivor.leave(t)
	s.wantOutputOnce()
	t.Log(s.failures())
}

// A topic is deleted and created again, longer than it was, while it is processed: every message of
// the new one has its output.
func TestStreamedTopicRecreated(t *testing.T) {
	t.Parallel()
	const n = 300
	s := newTxnFixture(t, servertest.Kafka(t),
		strings.ReplaceAll(servertest.Prefix(t), ":", "-"), 1)
	var recreated atomic.Bool
	m := s.join(func(pc *processorConfig) {
		pc.consumer.Consumer.Group.Session.Timeout = 6 * time.Second // the broker's minimum
		pc.txn.TransactionTimeout = 5 * time.Second
		pc.txn.Observer.GroupError = func(err error) {
			recreated.Store(recreated.Load() || errors.Is(err, txn.ErrTopicRecreated))
		}
	})
	s.produce(n)
	s.wantCommittedToEnd(60 * time.Second)
	s.replaceInput()
	s.produce(2 * n)
	s.wantCommittedToEnd(60 * time.Second)
	m.leave(t)
	counts := map[string]int{}
	for _, output := range s.read(s.out)[0] {
		counts[output]++
	}
	for offset := range 2 * n {
		want := 1
		if offset < n {
			want = 2 // one of each topic
		}
		assert.Equal(t, want, counts[fmt.Sprint("0@", offset)], "outputs of offset %d", offset)
	}
	t.Log("found before a commit or at the claim:", recreated.Load(), s.failures())
}

// replaceInput deletes the input topic and creates it again.
func (s *txnFixture) replaceInput() {
	s.t.Helper()
	admin, err := sarama.NewClusterAdmin(s.brokers, adminConfig())
	require.NoError(s.t, err)
	defer func() { _ = admin.Close() }()
	require.NoError(s.t, admin.DeleteTopic(s.in))
	eventually(s.t, 60*time.Second, func() (bool, string) {
		answer, err := admin.DescribeTopics([]string{s.in})
		return err == nil && answer[0].Err == sarama.ErrUnknownTopicOrPartition,
			fmt.Sprint(answer, err)
	})
	createTopic(s.t, s.brokers, s.in, s.partitions, 1)
	clear(s.sent)
}
