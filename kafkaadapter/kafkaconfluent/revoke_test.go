package kafkaconfluent

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// gateway is a handler that lets nothing pass before it is opened.
type gateway struct {
	inside chan struct{} // closed by the first one
	open   chan struct{}
	first  sync.Once
	left   chan struct{} // closed by the first one that was canceled
	deaf   bool          // to its context

	mu     sync.Mutex
	causes []error // of contexts that ended
}

func newGateway() *gateway {
	return &gateway{inside: make(chan struct{}), open: make(chan struct{}),
		left: make(chan struct{})}
}

func (g *gateway) handle(ctx context.Context, _ *kafkaadapter.Message) error {
	g.first.Do(func() { close(g.inside) })
	ended := ctx.Done()
	if g.deaf {
		ended = nil
	}
	select {
	case <-g.open:
		return nil
	case <-ended:
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.causes = append(g.causes, context.Cause(ctx)); len(g.causes) == 1 {
			close(g.left)
		}
		return context.Cause(ctx)
	}
}

func (g *gateway) ended() []error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]error(nil), g.causes...)
}

func draining(d time.Duration) func(*kafkaadapter.Config) {
	return func(c *kafkaadapter.Config) { c.Tuning.Drain = d }
}

// A handler that ends within the drain budget of a revoked partition is committed by the
// member that had it: the next one finds nothing to do.
func TestRevokedWithinTheDrain(t *testing.T) {
	eachMode(t, func(t *testing.T, mode mode) {
		r := newRig(t, mode, 2)
		patient := kafka.ConfigMap{"max.poll.interval.ms": 120000} // more than drain and Handover
		r.produce(0, 0, 1)
		r.produce(1, 1, 1)
		g := newGateway()
		first := r.join(g.handle, draining(time.Minute), patient)
		<-g.inside
		moved := make(chan struct{}, 1)
		second := r.join(nil, func(c *kafkaadapter.Config) {
			c.Observer.Delivered = func(*kafkaadapter.Message) { r.note("delivered") }
			c.Observer.Assigned = func(string, int32, int32) {
				select { // it may be assigned more when the first has left, and nobody takes that
				case moved <- struct{}{}:
				default:
				}
			}
		}, patient)
		r.eventually(func() (bool, string) {
			info := r.cluster.GroupInfo(group)
			return info != nil && len(info.Members) == 2, "one member"
		})
		select { // the group waits for the drain
		case <-moved:
			assert.Fail(t,
				"a partition is somebody else's while its handler runs within the drain budget")
		case <-time.After(time.Second):
		}
		close(g.open)
		r.members(2)
		r.committed()
		first.leave()
		second.leave()
		r.once(2)
		assert.Zero(t, r.noted("delivered"), "delivered again: the revocation did not wait")
	})
}

// A handler that takes longer is canceled, its claim is given back, and the next owner has
// its effect without waiting for the lease.
func TestRevokedBeyondTheDrain(t *testing.T) {
	eachMode(t, func(t *testing.T, mode mode) {
		r := newRig(t, mode, 2)
		r.produce(0, 0, 20)
		r.produce(1, 20, 20)
		g := newGateway()
		first := r.join(g.handle, draining(200*time.Millisecond), nil)
		<-g.inside
		second := r.join(nil, nil, nil)
		r.members(2)
		r.eventually(func() (bool, string) {
			return r.totalEffects() == 20, "the partition that moved is not done"
		})
		assert.NotEmpty(t, g.ended(), "nothing was cancelled")
		first.leave()
		r.committed()
		second.leave()
		r.once(40)
	})
}

// A handler that does not listen keeps its claim, and nobody runs its message at the same time.
func TestDeafHandlerKeepsItsClaim(t *testing.T) {
	r := newRig(t, cooperative, 1)
	r.produce(0, 0, 1)
	g := newGateway()
	g.deaf = true
	first := r.join(g.handle, draining(100*time.Millisecond), nil)
	<-g.inside
	first.cancel()
	waiting := make(chan struct{})
	var once sync.Once
	second := r.join(nil, func(c *kafkaadapter.Config) {
		c.Observer.Waiting = func(*kafkaadapter.Message) { once.Do(func() { close(waiting) }) }
	}, nil)
	<-waiting
	close(g.open)
	r.committed()
	r.once(1)
	second.leave()
	_ = first.wait()
}

// Partitions that are lost are given up at once, whatever the budget, and nothing of them is
// committed.
func TestLostPartitions(t *testing.T) {
	eachMode(t, func(t *testing.T, mode mode) {
		r := newRig(t, mode, 1)
		r.produce(0, 0, 10)
		g := newGateway()
		m := r.join(func(ctx context.Context, m *kafkaadapter.Message) error {
			if m.Offset == 0 {
				return nil // it could be committed
			}
			return g.handle(ctx, m)
		}, func(c *kafkaadapter.Config) {
			c.Tuning.Drain, c.Tuning.CommitEvery = 2*time.Second, time.Hour
		}, nil)
		<-g.inside
		r.eventually(func() (bool, string) { return r.totalEffects() == 1, "nothing is finished" })
		key, code := kmsg.Heartbeat, kerr.UnknownMemberID
		if mode.name == nextGen.name {
			key, code = kmsg.ConsumerGroupHeartbeat, kerr.FencedMemberEpoch
		}
		r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, TopLevel: true, Err: code})
		r.eventually(func() (bool, string) { return len(g.ended()) > 0, "nothing was cancelled" })
		for _, cause := range g.ended() {
			assert.ErrorIs(t, cause, kafkaadapter.ErrFenced)
		}
		r.mu.Lock()
		assert.Zero(t, r.commits)
		r.mu.Unlock()
		close(g.open)
		r.eventually(func() (bool, string) {
			return r.totalEffects() == 10, "the rest is not handled"
		})
		m.leave()
		r.committed()
		r.once(10)
	})
}

// Messages of a former assignment do not reach the next one: no message of another member
// is passed over when a partition comes back.
func TestPartitionsComeAndGo(t *testing.T) {
	eachMode(t, func(t *testing.T, mode mode) {
		r := newRig(t, mode, 2)
		slow := func(ctx context.Context, _ *kafkaadapter.Message) error {
			return kafkadriver.Sleep(ctx, 2*time.Millisecond)
		}
		stay := r.join(slow, nil, nil)
		sent := 0
		for range 4 {
			r.produce(0, sent, 200)
			r.produce(1, sent+200, 200)
			sent += 400
			guest := r.join(slow, nil, nil)
			r.members(2)
			guest.leave()
			r.members(1)
		}
		r.committed()
		stay.leave()
		r.once(sent)
	})
}

// A member that the group gives up while it drains hears of it by the answer to a commit: the rest
// of its handlers is canceled, and the next owner has their effects once.
func TestLostWhileDraining(t *testing.T) {
	r := newRig(t, eager, 1)
	g, first := newGateway(), make(chan struct{})
	patient := kafka.ConfigMap{"max.poll.interval.ms": 120000, "heartbeat.interval.ms": 300,
		"session.timeout.ms": 6000} // the broker is to miss the member that it does not know
	old := r.join(func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.Offset == 0 {
			<-first
			return nil
		}
		return g.handle(ctx, m)
	}, draining(time.Minute), patient)
	r.produce(0, 0, 2)
	<-g.inside
	info := r.cluster.GroupInfo(group)
	require.Len(t, info.Members, 1)
	id, beats, lost := info.Members[0].MemberID, 0, make(chan struct{})
	var joined atomic.Bool
	r.cluster.ControlKey(int16(kmsg.Heartbeat),
		func(req kmsg.Request) (kmsg.Response, error, bool) {
			r.cluster.KeepControl()
			if !joined.Load() || req.(*kmsg.HeartbeatRequest).MemberID != id {
				return nil, nil, false
			}
			switch beats++; beats {
			case 1: // by this one it hears of the rebalance, and begins to drain
				return nil, nil, false
			case 2:
				close(lost)
			}
			answer := req.ResponseKind().(*kmsg.HeartbeatResponse)
			answer.ErrorCode = kerr.UnknownMemberID.Code
			return answer, nil, true
		})
	next := r.join(nil, nil, patient)
	r.eventually(func() (bool, string) {
		info := r.cluster.GroupInfo(group)
		return info != nil && len(info.Members) == 2, "one member"
	})
	joined.Store(true)
	<-lost
	assert.Empty(t, g.ended(), "it drains")
	close(first) // its commit is refused
	r.eventually(func() (bool, string) { return len(g.ended()) > 0, "nothing was canceled" })
	require.ErrorIs(t, g.ended()[0], kafkaadapter.ErrFenced)
	close(g.open)
	r.committed()
	old.leave()
	next.leave()
	r.once(2)
}

// An error that librdkafka does not say to get over ends the session: it may skip what it could not
// read.
func TestErrorsOfTheClient(t *testing.T) {
	for code, ends := range map[kafka.ErrorCode]bool{
		kafka.ErrTransport: false, kafka.ErrAllBrokersDown: false,
		kafka.ErrUnknownTopicOrPart: false, kafka.ErrAutoOffsetReset: true,
		kafka.ErrBadMsg: true, kafka.ErrLogTruncation: true, kafka.ErrMsgSizeTooLarge: true,
		kafka.ErrFencedInstanceID: true,
	} {
		for _, fatal := range []bool{false, true} {
			r := newRig(t, eager, 1)
			c, err := New(group, r.config(r.store, nil))
			require.NoError(t, err)
			s := &session{engine: c.engine, offsets: c.engine.NewOffsets(nil)}
			s.ctx, s.stop = context.WithCancelCause(t.Context())
			answer := kafka.NewError(code, "told", fatal)
			s.trouble(answer)
			assert.Equal(t, ends || fatal, s.ctx.Err() != nil, "%v", answer)
			assert.Equal(t, fatal || code == kafka.ErrFencedInstanceID, s.fatal != nil, "%v",
				answer)
			s.stop(nil)
		}
	}
}
