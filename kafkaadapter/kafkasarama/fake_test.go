package kafkasarama

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

const (
	topic     = "orders"
	groupName = "g"
)

// scoped is where the rig's group has its records of the topic.
var scoped = dedup.WithScope(kafkaadapter.ScopeOf(groupName, topic))

// fakeGroup is a broker and a consumer group of one member in fake time: a log per
// partition, committed offsets, and sarama's rules for sessions and claims. It checks
// every commit against what the test says is done.
type fakeGroup struct {
	t *testing.T
	// finished reports whether a message may lie below a committed offset. Nil: all may.
	finished func(*sarama.ConsumerMessage) bool

	mu         sync.Mutex
	log        map[int32][]*sarama.ConsumerMessage
	committed  map[int32]int64
	fenced     bool // the coordinator's last answer
	paused     map[int32]bool
	changed    chan struct{} // closed and replaced at every change
	errs       chan error
	generation int32
	session    *fakeSession
	refuse     []error // of the next calls of Consume
	newest     bool    // partitions without a commit begin at their end
	rewind     bool    // an operator resets the group to the start before the next session
	joins      int
	topics     []string
}

func newFakeGroup(t *testing.T, partitions int32) *fakeGroup {
	g := &fakeGroup{
		t: t, log: map[int32][]*sarama.ConsumerMessage{}, committed: map[int32]int64{},
		paused: map[int32]bool{}, changed: make(chan struct{}), errs: make(chan error, 16),
	}
	for p := range partitions {
		g.log[p] = nil
	}
	return g
}

// change runs f under the lock and wakes the claims.
func (g *fakeGroup) change(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	close(g.changed)
	g.changed = make(chan struct{})
}

// add appends a message to its partition, at the next offset unless it names one.
func (g *fakeGroup) add(messages ...*sarama.ConsumerMessage) {
	g.change(func() {
		for _, m := range messages {
			m.Topic = topic
			if log := g.log[m.Partition]; m.Offset == 0 && len(log) > 0 {
				m.Offset = log[len(log)-1].Offset + 1
			}
			g.log[m.Partition] = append(g.log[m.Partition], m)
		}
	})
}

func (g *fakeGroup) committedTo(partition int32) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.committed[partition]
}

// joined returns how often the group was joined, and the last session.
func (g *fakeGroup) joined() (n int, last *fakeSession) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.joins, g.session
}

func (g *fakeGroup) isPaused(partition int32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.paused[partition]
}

// rebalance ends the session; Consume returns when its claims have.
func (g *fakeGroup) rebalance() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.session.cancel(errors.New("rebalance"))
}

// replay is a rebalance after which everything is delivered again.
func (g *fakeGroup) replay() {
	g.change(func() { g.rewind = true })
	g.rebalance()
}

// subscribed are the topics of the last Consume.
func (g *fakeGroup) subscribed() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.topics
}

// Consume implements sarama.ConsumerGroup.
func (g *fakeGroup) Consume(ctx context.Context, topics []string,
	h sarama.ConsumerGroupHandler) error {
	g.mu.Lock()
	g.joins++
	g.topics = topics
	if len(g.refuse) > 0 {
		err := g.refuse[0]
		g.refuse = g.refuse[1:]
		g.mu.Unlock()
		return err
	}
	g.generation++
	s := &fakeSession{group: g, generation: g.generation, handler: h,
		claims: map[int32]*fakeClaim{}}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	g.session = s
	if g.rewind {
		g.rewind = false
		clear(g.committed)
	}
	partitions := slices.Sorted(maps.Keys(g.log))
	g.mu.Unlock()
	defer s.cancel(nil)

	if err := h.Setup(s); err != nil {
		return err
	}
	for _, p := range partitions {
		s.begin(p)
	}
	<-s.ctx.Done()
	s.running.Wait()
	err := h.Cleanup(s)
	g.mu.Lock()
	defer g.mu.Unlock()
	s.over = true
	return err
}

// Errors implements sarama.ConsumerGroup.
func (g *fakeGroup) Errors() <-chan error { return g.errs }

// Close implements sarama.ConsumerGroup.
func (g *fakeGroup) Close() error { return nil }

// Pause implements sarama.ConsumerGroup.
func (g *fakeGroup) Pause(set map[string][]int32) { g.setPaused(set, true) }

// Resume implements sarama.ConsumerGroup.
func (g *fakeGroup) Resume(set map[string][]int32) { g.setPaused(set, false) }

func (g *fakeGroup) setPaused(set map[string][]int32, on bool) {
	g.change(func() {
		for _, p := range set[topic] {
			g.paused[p] = on
		}
	})
}

// PauseAll implements sarama.ConsumerGroup.
func (g *fakeGroup) PauseAll() { g.t.Error("PauseAll was called") }

// ResumeAll implements sarama.ConsumerGroup.
func (g *fakeGroup) ResumeAll() { g.t.Error("ResumeAll was called") }

// fakeSession is one membership in one generation.
type fakeSession struct {
	group   *fakeGroup
	handler sarama.ConsumerGroupHandler
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup

	generation int32 // guarded by group.mu, like the rest
	claims     map[int32]*fakeClaim
	over       bool
}

// begin starts a claim, or says, as sarama does, that its offset is out of range.
func (s *fakeSession) begin(partition int32) {
	s.group.mu.Lock()
	beyond := s.group.committed[partition] > s.group.end(partition)
	s.group.mu.Unlock()
	if !beyond {
		s.start(partition)
		return
	}
	s.group.errs <- &sarama.ConsumerError{Topic: topic, Partition: partition,
		Err: sarama.ErrOffsetOutOfRange}
	s.cancel(errors.New("a claim has not begun"))
}

// end is the offset after the last message of a partition.
func (g *fakeGroup) end(partition int32) int64 {
	log := g.log[partition]
	if len(log) == 0 {
		return 0
	}
	return log[len(log)-1].Offset + 1
}

// start begins a claim at the committed offset.
func (s *fakeSession) start(partition int32) *fakeClaim {
	c := &fakeClaim{session: s, partition: partition,
		messages: make(chan *sarama.ConsumerMessage, 4), ended: make(chan struct{})}
	c.ctx, c.revoke = context.WithCancelCause(s.ctx)
	s.group.mu.Lock()
	s.claims[partition] = c
	from, ok := s.group.committed[partition]
	if c.initial = from; !ok {
		c.initial = sarama.OffsetOldest
		if s.group.newest {
			c.initial, from = sarama.OffsetNewest, int64(len(s.group.log[partition]))
		}
	}
	s.group.mu.Unlock()
	s.running.Go(func() { c.feed(from) })
	s.running.Go(func() {
		defer close(c.ended)
		c.err = s.handler.ConsumeClaim(s, c)
		if c.err != nil {
			s.group.errs <- c.err
		}
		if context.Cause(c.ctx) != errFakeRevoked { //nolint:errorlint // identity
			s.cancel(errors.New("a claim has exited"))
		}
	})
	return c
}

// Claims implements sarama.ConsumerGroupSession.
func (s *fakeSession) Claims() map[string][]int32 {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	return map[string][]int32{topic: slices.Sorted(maps.Keys(s.group.log))}
}

// MemberID implements sarama.ConsumerGroupSession.
func (s *fakeSession) MemberID() string { return "member" }

// GenerationID implements sarama.ConsumerGroupSession.
func (s *fakeSession) GenerationID() int32 {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	return s.generation
}

// MarkOffset implements sarama.ConsumerGroupSession.
func (s *fakeSession) MarkOffset(string, int32, int64, string) {
	s.group.t.Error("MarkOffset was called")
}

// Commit implements sarama.ConsumerGroupSession. Nothing is marked, so it sends nothing. It waits
// for a join that is under way, which helps only after a fencing answer.
func (s *fakeSession) Commit() {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	assert.True(s.group.t, s.group.fenced, "Commit was called")
}

// take commits an offset. It is the oracle: an offset must not be committed before the messages
// below it are finished, nor when its partition has been given up.
func (g *fakeGroup) take(partition int32, offset int64) {
	for _, m := range g.log[partition] {
		if m.Offset >= g.committed[partition] && m.Offset < offset && g.finished != nil {
			assert.True(g.t, g.finished(m), "partition %d was committed to %d, but %d is not done",
				partition, offset, m.Offset)
		}
	}
	if s := g.session; s != nil && s.claims[partition] != nil {
		assert.False(g.t, s.claims[partition].returned(),
			"partition %d was committed to %d after it had been given up", partition, offset)
	}
	g.committed[partition] = offset
}

// ResetOffset implements sarama.ConsumerGroupSession.
func (s *fakeSession) ResetOffset(string, int32, int64, string) {
	s.group.t.Error("ResetOffset was called")
}

// MarkMessage implements sarama.ConsumerGroupSession.
func (s *fakeSession) MarkMessage(*sarama.ConsumerMessage, string) {
	s.group.t.Error("MarkMessage was called")
}

// Context implements sarama.ConsumerGroupSession.
func (s *fakeSession) Context() context.Context { return s.ctx }

// fakeClaim is one partition of a session.
type fakeClaim struct {
	session   *fakeSession
	partition int32
	initial   int64
	messages  chan *sarama.ConsumerMessage
	ctx       context.Context
	revoke    context.CancelCauseFunc
	ended     chan struct{}
	err       error // what ConsumeClaim returned, once ended
}

var errFakeRevoked = errors.New("revoked")

func (c *fakeClaim) returned() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// feed sends the log from an offset on, while it is not paused.
func (c *fakeClaim) feed(from int64) {
	defer close(c.messages)
	g := c.session.group
	for {
		g.mu.Lock()
		i := slices.IndexFunc(g.log[c.partition], func(m *sarama.ConsumerMessage) bool {
			return m.Offset >= from
		})
		var next *sarama.ConsumerMessage
		if i >= 0 && !g.paused[c.partition] {
			next = g.log[c.partition][i]
		}
		changed := g.changed
		g.mu.Unlock()
		if next == nil {
			select {
			case <-changed:
			case <-c.ctx.Done():
				return
			}
			continue
		}
		select {
		case c.messages <- next:
			from = next.Offset + 1
		case <-c.ctx.Done():
			return
		}
	}
}

// Topic implements sarama.ConsumerGroupClaim.
func (c *fakeClaim) Topic() string { return topic }

// Partition implements sarama.ConsumerGroupClaim.
func (c *fakeClaim) Partition() int32 { return c.partition }

// InitialOffset implements sarama.ConsumerGroupClaim.
func (c *fakeClaim) InitialOffset() int64 { return c.initial }

// HighWaterMarkOffset implements sarama.ConsumerGroupClaim.
func (c *fakeClaim) HighWaterMarkOffset() int64 {
	g := c.session.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if log := g.log[c.partition]; len(log) > 0 {
		return log[len(log)-1].Offset + 1
	}
	return 0
}

// Messages implements sarama.ConsumerGroupClaim.
func (c *fakeClaim) Messages() <-chan *sarama.ConsumerMessage { return c.messages }

// message makes a message with an id, a key and the id as its value.
func message(id, key string) *sarama.ConsumerMessage {
	m := &sarama.ConsumerMessage{Value: []byte(id),
		Headers: []*sarama.RecordHeader{{Key: []byte("message-id"), Value: []byte(id)}}}
	if key != "" {
		m.Key = []byte(key)
	}
	return m
}

// idIn is the id of a message.
func idIn(m *sarama.ConsumerMessage) string {
	id, _ := kafkaadapter.DefaultID()(Message(m))
	return id
}

// at sets the partition and the offset of a message.
func at(partition int32, offset int64, m *sarama.ConsumerMessage) *sarama.ConsumerMessage {
	m.Partition, m.Offset = partition, offset
	return m
}

func ids(n int) []*sarama.ConsumerMessage {
	var all []*sarama.ConsumerMessage
	for i := range n {
		all = append(all, message(fmt.Sprint("id", i), fmt.Sprint("key", i)))
	}
	return all
}

// recorded is the oracle over a store: a message is finished when its id is on record.
func recorded(t *testing.T, store dedup.Store) func(*sarama.ConsumerMessage) bool {
	return func(m *sarama.ConsumerMessage) bool {
		key, err := driver.NewID("t", kafkaadapter.ScopeOf(groupName, topic), idIn(m))
		if !assert.NoError(t, err, "message %d", m.Offset) {
			return false
		}
		s := store.Lookup(context.Background(), []driver.ID{key})[0].Record.State
		return s == driver.StateSucceeded || s == driver.StateFailed
	}
}

// toldErrors are the errors that a hook was given.
type toldErrors struct {
	mu   sync.Mutex
	errs []error
}

func (e *toldErrors) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.errs = append(e.errs, err)
}

func (e *toldErrors) all() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.errs)
}
