package kafkasegmentio

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Messages of all partitions have their effects, and are committed after that.
func TestConsume(t *testing.T) {
	r := newRig(t, 3)
	for p := range int32(3) {
		r.produce(p, int(p)*1000, 200)
	}
	m := r.join(nil, nil)
	r.committed()
	r.produce(1, 5000, 10)
	r.committed()
	progress := m.consumer.Progress()
	require.Len(t, progress, 3)
	assert.Zero(t, progress[1].Lag)
	assert.Equal(t, int64(209), progress[1].Received)
	m.leave()
	r.once(610)
	info := r.cluster.GroupInfo(group)
	assert.Empty(t, info.Members, "the group was not left")
	topics := r.cluster.TopicInfo(orders)
	assert.Equal(t, kafkadriver.Stamp(kafkadriver.TopicID(topics.TopicID)),
		info.Commits[orders][0].Metadata, "the commit's UUID")

	m = r.join(nil, nil) // continues where the last one ended
	r.produce(0, 6000, 5)
	r.committed()
	m.leave()
	r.once(615)
	assert.Zero(t, r.noted("skipped"), "messages that were read again")
	assert.Empty(t, r.errs)
}

// A message whose commit was lost with its member is skipped by the next one.
func TestRedeliveryIsSkipped(t *testing.T) {
	r := newRig(t, 1)
	r.lease = 2 * time.Second
	r.produce(0, 0, 50)
	m := r.join(nil, func(c *kafkaadapter.Config) {
		c.Tuning.CommitEvery, c.Tuning.CommitCount = time.Hour, 1<<30
	})
	r.eventually(func() (bool, string) { return r.totalEffects() == 50, "not all ran" })
	r.eventually(func() (bool, string) {
		for _, id := range r.log[0] {
			if r.stateOf(id) != driver.StateSucceeded {
				return false, id
			}
		}
		return true, ""
	})
	m.crash()
	_ = m.wait()
	m = r.join(nil, nil)
	r.committed()
	m.leave()
	r.once(50)
	assert.Equal(t, 50, r.noted("skipped"))
}

// A second member gets some of the partitions after the first has drained and committed them.
func TestRebalance(t *testing.T) {
	r := newRig(t, 4)
	slow := func(context.Context, *kafkaadapter.Message) error {
		<-time.After(5 * time.Millisecond)
		return nil
	}
	for p := range int32(4) {
		r.produce(p, int(p)*1000, 300)
	}
	first := r.join(slow, nil)
	r.eventually(func() (bool, string) { return r.totalEffects() > 100, "nothing runs" })
	second := r.join(slow, nil)
	r.members(2)
	for p := range int32(4) {
		r.produce(p, int(p)*1000+500, 100)
	}
	r.committed()
	first.leave()
	r.produce(2, 9000, 10)
	r.committed()
	second.leave()
	r.once(1610)
	assert.Zero(t, r.noted("skipped"), "messages that were read again")
}

// The end of ctx drains what runs, and commits it.
func TestEndDrains(t *testing.T) {
	r := newRig(t, 1)
	r.produce(0, 0, 3)
	var running atomic.Int32
	ended := make(chan struct{})
	m := r.join(func(context.Context, *kafkaadapter.Message) error {
		running.Add(1)
		<-ended
		return nil
	}, nil)
	r.eventually(func() (bool, string) { return running.Load() == 3, "nothing runs" })
	m.cancel()
	<-time.After(100 * time.Millisecond) // for the drain to begin
	close(ended)
	m.leave()
	r.once(3)
	assert.Equal(t, int64(3), r.cluster.GroupInfo(group).Commits[orders][0].Offset)
}

// An answer to a commit that fences the member off cancels its handlers with ErrFenced.
func TestFencedByACommit(t *testing.T) {
	r := newRig(t, 1)
	var fence atomic.Bool
	r.cluster.ControlKey(int16(kmsg.OffsetCommit),
		func(req kmsg.Request) (kmsg.Response, error, bool) {
			r.cluster.KeepControl()
			if !fence.Load() {
				return nil, nil, false
			}
			answer := req.ResponseKind().(*kmsg.OffsetCommitResponse)
			for _, topic := range req.(*kmsg.OffsetCommitRequest).Topics {
				to := kmsg.NewOffsetCommitResponseTopic()
				to.Topic, to.TopicID = topic.Topic, topic.TopicID
				for _, p := range topic.Partitions {
					tp := kmsg.NewOffsetCommitResponseTopicPartition()
					tp.Partition, tp.ErrorCode = p.Partition, kerr.IllegalGeneration.Code
					to.Partitions = append(to.Partitions, tp)
				}
				answer.Topics = append(answer.Topics, to)
			}
			return answer, nil, true
		})
	causes := make(chan error, 1)
	hangs := atomic.Bool{}
	hangs.Store(true)
	m := r.join(func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.Offset == 1 && hangs.Load() {
			<-ctx.Done()
			hangs.Store(false)
			causes <- context.Cause(ctx)
			fence.Store(false)
			return ctx.Err()
		}
		return nil
	}, func(c *kafkaadapter.Config) { c.Tuning.Drain = 6 * time.Second })
	fence.Store(true)
	r.produce(0, 0, 2)
	select {
	case cause := <-causes:
		require.ErrorIs(t, cause, kafkaadapter.ErrFenced)
	case <-time.After(patience):
		require.FailNow(t, "the handler is not canceled")
	}
	r.committed()
	m.leave()
	r.once(2)
	assert.True(t, r.told(kafkaadapter.ErrFenced))
}

// The answer to a request whose caller has left touches nothing that the caller has. The race
// detector is the judge.
func TestAnswerAfterTheCallerHasLeft(t *testing.T) {
	r := newRig(t, 1)
	asked, release := make(chan struct{}), make(chan struct{})
	var first sync.Once
	r.cluster.ControlKey(int16(kmsg.Metadata),
		func(req kmsg.Request) (kmsg.Response, error, bool) {
			r.cluster.KeepControl()
			if req.GetVersion() == uuidVersion {
				first.Do(func() {
					close(asked)
					r.cluster.SleepControl(func() { <-release })
				})
			}
			return nil, nil, false
		})
	c, err := New(r.cluster.ListenAddrs(), group, []string{orders}, Options{},
		r.config(r.store, nil))
	require.NoError(t, err)
	cluster := c.newCluster()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // not the caller, whose steps would be in order with those of the answer
		<-asked
		cancel()
		close(release)
	}()
	found, err := cluster.lookUp(ctx, []string{orders})
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, found)
	for range 5 { // the answer comes meanwhile; to wait for it would put it in order too
		runtime.GC()
	}
	found, err = cluster.lookUp(t.Context(), []string{orders})
	require.NoError(t, err)
	require.Len(t, found, 1)
}

// A member that the group has given up while it drains hears of it by its own heartbeat.
func TestFencedByAHeartbeat(t *testing.T) {
	r := newRig(t, 1)
	var fence atomic.Bool
	r.cluster.ControlKey(int16(kmsg.Heartbeat),
		func(req kmsg.Request) (kmsg.Response, error, bool) {
			r.cluster.KeepControl()
			if !fence.Load() {
				return nil, nil, false
			}
			answer := req.ResponseKind().(*kmsg.HeartbeatResponse)
			answer.ErrorCode = kerr.UnknownMemberID.Code
			return answer, nil, true
		})
	causes := make(chan error, 1)
	m := r.join(func(ctx context.Context, m *kafkaadapter.Message) error {
		if len(causes) == 0 {
			fence.Store(true)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			fence.Store(false)
			return ctx.Err()
		}
		return nil
	}, func(c *kafkaadapter.Config) { c.Tuning.Drain = 6 * time.Second })
	r.produce(0, 0, 1)
	r.committed()
	require.ErrorIs(t, <-causes, kafkaadapter.ErrFenced)
	m.leave()
	r.once(1)
}

// Messages of a transaction that was aborted have no effect; those around it have.
func TestAbortedTransactionsAreInvisible(t *testing.T) {
	r := newRig(t, 1)
	r.free = true
	producer := r.newClient(kgo.TransactionalID("tx"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	transact := func(end kgo.TransactionEndTry, ids ...string) {
		require.NoError(t, producer.BeginTransaction())
		for _, id := range ids {
			require.NoError(t, producer.ProduceSync(t.Context(), record(0, id)).FirstErr())
		}
		require.NoError(t, producer.EndTransaction(t.Context(), end))
	}
	r.produce(0, 0, 2)
	transact(kgo.TryAbort, "a", "b")
	transact(kgo.TryCommit, "c")
	r.produce(0, 2, 1)
	transact(kgo.TryAbort, "d")
	transact(kgo.TryAbort, "e")
	transact(kgo.TryCommit, "f", "g")
	r.produce(0, 3, 1)
	m := r.join(nil, nil)
	r.eventually(func() (bool, string) { return r.totalEffects() >= 7, "not all ran" })
	m.leave()
	r.once(7)
	for _, id := range []string{"a", "b", "d", "e"} {
		assert.Zero(t, r.effects[id], id)
	}
}

// An offset that retention has deleted is an error that is told again and again, and nothing is
// skipped, unless that is allowed.
func TestRetentionGap(t *testing.T) {
	r := newRig(t, 1)
	r.produce(0, 0, 10)
	m := r.join(nil, nil)
	r.committed()
	m.leave()
	r.produce(0, 10, 10)
	require.NoError(t, r.cluster.DeleteRecords(orders, 0, 15))
	m = r.join(nil, nil)
	r.eventually(func() (bool, string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.errs) >= 3, "no error is told"
	})
	m.leave()
	r.once(10)
	for _, err := range r.errs {
		require.ErrorContains(t, err, "orders/0: offset 10: the log does not have it, and begins at 15")
	}
	r.free = true
	m = r.join(nil, func(c *kafkaadapter.Config) { c.Allow.Skip = true })
	r.committed()
	m.leave()
	r.once(15)
}

// A group that has committed nothing begins at the oldest message that is left.
func TestBeginsAtTheOldest(t *testing.T) {
	r := newRig(t, 1)
	r.free = true
	r.produce(0, 0, 10)
	require.NoError(t, r.cluster.DeleteRecords(orders, 0, 4))
	m := r.join(nil, nil)
	r.committed()
	m.leave()
	r.once(6)
	assert.Empty(t, r.errs)
}

// A partition whose handlers are slow is paused, and resumed.
func TestPause(t *testing.T) {
	r := newRig(t, 1)
	open := make(chan struct{})
	m := r.join(func(context.Context, *kafkaadapter.Message) error {
		<-open
		return nil
	}, func(c *kafkaadapter.Config) { c.Tuning.HighWater, c.Tuning.LowWater = 10, 5 })
	r.produce(0, 0, 20)
	r.eventually(func() (bool, string) { return r.noted("paused true") > 0, "not paused" })
	r.produce(0, 20, 100)
	close(open)
	r.committed()
	assert.Positive(t, r.noted("paused false"))
	m.leave()
	r.once(120)
}

// A topic that is deleted and created again is read from its start.
func TestTopicIsRecreated(t *testing.T) {
	r := newRig(t, 1)
	r.produce(0, 0, 20)
	m := r.join(nil, nil)
	r.committed()
	admin := kadm.NewClient(r.newClient())
	_, err := admin.DeleteTopic(t.Context(), orders)
	require.NoError(t, err)
	_, err = admin.CreateTopic(t.Context(), 1, 1, nil, orders)
	require.NoError(t, err)
	r.mu.Lock()
	clear(r.log)
	r.mu.Unlock()
	r.client = r.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	r.produce(0, 100, 30)
	r.committed()
	m.leave()
	r.once(50)
}

// A topic that does not exist is left out until it does, and so are new partitions.
func TestTopicAndPartitionsComeLater(t *testing.T) {
	r := newRig(t, 1)
	m := r.join(nil, nil, orders, "late")
	r.produce(0, 0, 5)
	r.committed()
	admin := kadm.NewClient(r.newClient())
	_, err := admin.CreateTopic(t.Context(), 1, 1, nil, "late")
	require.NoError(t, err)
	late := record(0, "late")
	late.Topic = "late"
	client := r.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, client.ProduceSync(t.Context(), late).FirstErr())
	r.eventually(func() (bool, string) { return r.totalEffects() == 6, "late is not read" })
	_, err = admin.CreatePartitions(t.Context(), 1, orders)
	require.NoError(t, err)
	r.client = r.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	r.produce(1, 100, 5)
	r.committed()
	m.leave()
	r.once(11)
}

// A member that drains for longer than its session timeout stays in the group.
func TestDrainOutlastsTheSession(t *testing.T) {
	r := newRig(t, 2)
	r.session = 2 * time.Second
	release := make(chan struct{})
	var running atomic.Int32
	hold := func(ctx context.Context, _ *kafkaadapter.Message) error {
		running.Add(1)
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	long := func(c *kafkaadapter.Config) { c.Tuning.Drain = 12 * time.Second }
	first := r.join(hold, long)
	r.produce(0, 0, 1)
	r.produce(1, 10, 1)
	r.eventually(func() (bool, string) { return running.Load() == 2, "nothing runs" })
	second := r.join(hold, long)
	<-time.After(2 * r.session) // nothing is to happen
	assert.Equal(t, int32(2), running.Load(), "messages began elsewhere")
	close(release)
	r.committed()
	r.members(2)
	first.leave()
	second.leave()
	r.once(2)
	assert.Equal(t, int32(2), running.Load(), "messages that ran again")
	assert.False(t, r.told(kafkaadapter.ErrFenced))
}
