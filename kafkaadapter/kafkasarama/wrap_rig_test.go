package kafkasarama

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/kafkaadapter"
)

// wrapRig is a wrapped handler over a fakeGroup, in a loop around Consume as programs have it.
type wrapRig struct {
	*rig
	told       toldErrors // Observer.GroupError
	passed     parkedOffsets
	unrecorded parkedOffsets
	skipped    parkedOffsets
	parked     parkedOffsets
	inner      func(*wrapRig, sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error
	setup      func(sarama.ConsumerGroupSession)
	metadata   string // of what is committed
}

type consumeClaim = func(*wrapRig, sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error

// wrapInBubble runs f in fake time. In the end no claim is left: the Deduper can be closed.
func wrapInBubble(t *testing.T, inner consumeClaim, change func(*wrapRig, *kafkaadapter.Config),
	f func(*wrapRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory := dedup.Memory(1 << 16)
		r := &wrapRig{inner: inner, rig: &rig{t: t, group: newFakeGroup(t, 1), memory: memory,
			store: deduptest.NewFaulty(memory, nil), ended: make(chan error, 1),
			runs: map[string]int{}}}
		r.dedup = r.otherProcess()
		r.group.finished = recorded(t, memory)
		cfg := kafkaadapter.Config{Deduper: r.dedup, Logger: slog.New(slog.DiscardHandler),
			Attempts: kafkaadapter.Attempts{RetryBase: 100 * time.Millisecond,
				RetryMax: 2 * time.Second},
			Observer: kafkaadapter.Observer{
				GroupError: r.told.add,
				PassedOver: func(m *kafkaadapter.Message) {
					_ = r.passed.park(t.Context(), m, nil)
				},
				Unrecorded: func(m *kafkaadapter.Message, _ error) {
					_ = r.unrecorded.park(t.Context(), m, nil)
				},
				Parked: func(m *kafkaadapter.Message, _ error) {
					_ = r.parked.park(t.Context(), m, nil)
				},
			}}
		cfg.Observer.Recorded = func(m *kafkaadapter.Message, _ time.Duration) {
			r.note("recorded " + m.ID)
		}
		if change != nil {
			change(r, &cfg)
		}
		handler, err := Wrap(groupName, r, cfg)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(context.Background())
		r.stop = stop
		t.Cleanup(stop)
		over := &overFake{handler: handler, rig: r}
		go func() {
			defer close(r.ended)
			for ctx.Err() == nil {
				_ = r.group.Consume(ctx, []string{topic}, over)
				time.Sleep(time.Second) // joining takes some time
			}
		}()
		go func() {
			for {
				select {
				case <-r.group.errs:
				case <-ctx.Done():
					return
				}
			}
		}()
		f(r)
		r.heal()
		stop()
		<-r.ended
		closing, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, r.dedup.Close(closing), "a claim is left")
		synctest.Wait()
	})
}

// Setup implements sarama.ConsumerGroupHandler: this is the handler that is wrapped.
func (r *wrapRig) Setup(s sarama.ConsumerGroupSession) error {
	if r.setup != nil {
		r.setup(s)
	}
	return nil
}

// Cleanup implements sarama.ConsumerGroupHandler.
func (r *wrapRig) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim implements sarama.ConsumerGroupHandler.
func (r *wrapRig) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	return r.inner(r, s, c)
}

// effect is that of a message.
func (r *wrapRig) effect(m *sarama.ConsumerMessage) { r.ran(&kafkaadapter.Message{ID: idIn(m)}) }

// wantTold requires one error, of the message at an offset.
func (r *wrapRig) wantTold(offset int64, target error) {
	r.t.Helper()
	var message *kafkaadapter.UnprocessableError
	all := r.told.all()
	if assert.NotEmpty(r.t, all) && assert.ErrorAs(r.t, all[0], &message) {
		assert.Equal(r.t, offset, message.Offset)
		assert.ErrorIs(r.t, all[0], target)
	}
}

// overFake gives a handler sessions that can be marked, by sarama's rules: a mark only goes up, a
// reset only down. Both are committed at once.
type overFake struct {
	handler sarama.ConsumerGroupHandler
	rig     *wrapRig

	mu  sync.Mutex
	now *marked
}

type marked struct {
	*fakeSession
	rig *wrapRig
	at  map[int32]int64
}

func (o *overFake) session(s sarama.ConsumerGroupSession) *marked {
	o.mu.Lock()
	defer o.mu.Unlock()
	fake := s.(*fakeSession) //nolint:forcetypeassert // of fakeGroup
	fake.group.mu.Lock()
	defer fake.group.mu.Unlock()
	if o.now == nil || o.now.fakeSession != fake {
		o.now = &marked{fakeSession: fake, rig: o.rig, at: map[int32]int64{}}
		for p := range fake.group.log {
			o.now.at[p] = -1
			if at, ok := fake.group.committed[p]; ok {
				o.now.at[p] = at
			}
		}
	}
	return o.now
}

func (o *overFake) Setup(s sarama.ConsumerGroupSession) error {
	return o.handler.Setup(o.session(s))
}

func (o *overFake) Cleanup(s sarama.ConsumerGroupSession) error {
	return o.handler.Cleanup(o.session(s))
}

func (o *overFake) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	return o.handler.ConsumeClaim(o.session(s), c)
}

// MarkOffset implements sarama.ConsumerGroupSession.
func (s *marked) MarkOffset(_ string, partition int32, offset int64, metadata string) {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	if offset > s.at[partition] {
		s.at[partition], s.rig.metadata = offset, metadata
		s.group.take(partition, offset)
	}
}

// MarkMessage implements sarama.ConsumerGroupSession.
func (s *marked) MarkMessage(m *sarama.ConsumerMessage, metadata string) {
	s.MarkOffset(m.Topic, m.Partition, m.Offset+1, metadata)
}

// ResetOffset implements sarama.ConsumerGroupSession.
func (s *marked) ResetOffset(_ string, partition int32, offset int64, metadata string) {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	if offset <= s.at[partition] {
		s.at[partition], s.rig.metadata = offset, metadata
		s.group.committed[partition] = offset
	} else {
		s.rig.note("a reset was passed on that goes up")
	}
}

// Commit implements sarama.ConsumerGroupSession.
func (s *marked) Commit() { s.rig.note("commit") }

// markEach is a handler that marks each message after its effect.
func markEach(r *wrapRig, s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for m := range c.Messages() {
		r.effect(m)
		s.MarkMessage(m, "")
	}
	return nil
}

// inBatches is a handler that collects n messages and has mark mark them.
func inBatches(n int, mark func(*wrapRig, sarama.ConsumerGroupSession,
	[]*sarama.ConsumerMessage)) consumeClaim {
	return func(r *wrapRig, s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
		var batch []*sarama.ConsumerMessage
		for m := range c.Messages() {
			if batch = append(batch, m); len(batch) == n {
				for _, m := range batch {
					r.effect(m)
				}
				mark(r, s, batch)
				batch = nil
			}
		}
		return nil
	}
}

var errHandler = errors.New("the handler has had enough")
