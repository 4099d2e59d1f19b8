package kafka_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/kafkaadapter"
)

var (
	errNotYours = errors.New("somebody else has it")
	errTaken    = errors.New("it was taken away")
)

// lender lends partitions, and can take them away.
type lender struct {
	mu     sync.Mutex
	refuse int // how many of the next requests to refuse
	lent   map[int32]context.CancelCauseFunc
	asked  int
}

// loan is a partition that was lent.
type loan struct {
	ctx context.Context
	end context.CancelCauseFunc
}

func (l *loan) Context() context.Context        { return l.ctx }
func (l *loan) Misplaced(context.Context) error { return context.Cause(l.ctx) }

func (l *loan) Release(context.Context) error {
	l.end(context.Canceled)
	return nil
}

func (l *lender) own(_ context.Context, at kafkaadapter.Assigned) (kafkaadapter.Ownership, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if l.refuse > 0 {
		l.refuse--
		return nil, errNotYours
	}
	o := &loan{}
	o.ctx, o.end = context.WithCancelCause(context.Background())
	l.lent[at.Partition] = o.end
	return o, nil
}

func (l *lender) take(partition int32, refuse int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = refuse
	l.lent[partition](errTaken)
}

// When a member loses the ownership of a partition, only the handlers of that partition end. sarama
// would end the session, and with it all partitions of the member.
func TestLostPartitionStaysWithItsMember(t *testing.T) {
	eachFlavor(t, func(t *testing.T, f flavor) {
		s := f.scene(t, 3, 2).nobodyDies()
		l := &lender{lent: map[int32]context.CancelCauseFunc{}}
		var revoked atomic.Int64
		causes := make(chan error, 1)
		var once sync.Once
		s.produce(numbered(0, 0, 1)...)
		m := s.join(func(ctx context.Context, m *kafkaadapter.Message) (err error) {
			if m.ID == idOf(0) {
				once.Do(func() {
					<-ctx.Done()
					err = context.Cause(ctx)
					causes <- err
				})
			}
			return err
		}, func(mc *memberConfig) {
			mc.Observer.Revoked = func(string, int32, int, int) { revoked.Add(1) }
			mc.Own = &kafkaadapter.Owning{Acquire: l.own, Partitioner: kafkaadapter.Murmur2}
		})
		eventually(t, 10*time.Second, func() (bool, string) {
			return m.running.Load() == 1, "nothing runs"
		})
		l.take(0, 3)
		assert.ErrorIs(t, waitFor(t, causes, "the handler runs on"), errTaken, "why it ended")
		s.produce(numbered(1, 100, 50)...)
		s.produce(numbered(0, 200, 50)...)
		s.wantCommittedToEnd(10 * time.Second)
		s.oracle.mu.Lock()
		generations := len(s.oracle.generations)
		s.oracle.mu.Unlock()
		assert.Zero(t, revoked.Load(), "partitions that were revoked")
		assert.Equal(t, 1, generations)
		s.note(func() {
			assert.Empty(t, s.groupErrors)
		})
		m.leave(t)
		s.wantEffects()
		assert.Equal(t, 6, l.asked, "2 for the partitions and 4 for what was taken")
	})
}
