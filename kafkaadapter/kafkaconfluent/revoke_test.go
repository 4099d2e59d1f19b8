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
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter"
)

// A member that loses its membership while it drains learns that from the answer to a commit. The
// rest of its handlers is canceled, and the next owner has their effects once.
func TestLostWhileDraining(t *testing.T) {
	r := newRig(t, 1)
	first, inside, causes := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var once sync.Once
	// the broker is to miss the member that it does not know
	patient := kafka.ConfigMap{"max.poll.interval.ms": 120000, "heartbeat.interval.ms": 300,
		"partition.assignment.strategy": "range"}
	cfg := r.config(func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.Offset == 0 {
			<-first
			return nil
		}
		once.Do(func() {
			close(inside)
			<-ctx.Done()
			causes <- context.Cause(ctx)
		})
		return context.Cause(ctx)
	})
	cfg.Tuning.Drain = time.Minute
	leave := r.join(cfg, patient)
	r.produce(0, 0, 2)
	<-inside
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
			case 1: // its answer announces the rebalance: the member begins to drain
				return nil, nil, false
			case 2:
				close(lost)
			}
			answer := req.ResponseKind().(*kmsg.HeartbeatResponse)
			answer.ErrorCode = kerr.UnknownMemberID.Code
			return answer, nil, true
		})
	next := r.join(r.config(nil), patient)
	r.eventually(func() (bool, string) {
		info := r.cluster.GroupInfo(group)
		return info != nil && len(info.Members) == 2, "one member"
	})
	joined.Store(true)
	<-lost
	assert.Empty(t, causes, "it drains")
	close(first) // its commit is refused
	require.ErrorIs(t, <-causes, kafkaadapter.ErrFenced)
	r.committed()
	leave()
	next()
	r.once(2)
}

// An error ends the session unless librdkafka says that it recovers from it: librdkafka may skip
// messages that it could not read.
func TestErrorsOfTheClient(t *testing.T) {
	for code, ends := range map[kafka.ErrorCode]bool{
		kafka.ErrTransport: false, kafka.ErrAllBrokersDown: false,
		kafka.ErrUnknownTopicOrPart: false, kafka.ErrAutoOffsetReset: true,
		kafka.ErrBadMsg: true, kafka.ErrLogTruncation: true, kafka.ErrMsgSizeTooLarge: true,
		kafka.ErrFencedInstanceID: true,
	} {
		for _, fatal := range []bool{false, true} {
			r := newRig(t, 1)
			c, err := New(group, r.config(nil))
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
