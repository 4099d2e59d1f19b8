package drivertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// slow is how long a slow handler takes for a message.
func slow(d time.Duration) kafkaadapter.Handler {
	return func(ctx context.Context, _ *kafkaadapter.Message) error {
		return kafkadriver.Sleep(ctx, d)
	}
}

// claims learns the owner of each partition from the hooks of members.
type claims struct {
	s     *scene
	mu    sync.Mutex
	owner map[int32]string
	moved int
}

// of returns the change that gives a member these hooks.
func (c *claims) of(name string) change {
	return configured(func(cfg *kafkaadapter.Config) {
		cfg.Observer.Assigned = func(topic string, p, _ int32) {
			c.mu.Lock()
			defer c.mu.Unlock()
			assert.Equal(c.s, orders, topic)
			assert.Empty(c.s, c.owner[p], "partition %d is assigned to %s", p, name)
			c.owner[p] = name
		}
		cfg.Observer.Revoked = func(topic string, p int32, _, _ int) {
			c.mu.Lock()
			defer c.mu.Unlock()
			assert.Equal(c.s, orders, topic)
			assert.Equal(c.s, name, c.owner[p], "of partition %d, which is revoked", p)
			delete(c.owner, p)
			c.moved++
		}
	})
}

func (c *claims) held() (all map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all = map[string]int{}
	for _, name := range c.owner {
		all[name]++
	}
	return all
}

// Members come and go. A partition is assigned only after the member that had it has drained and
// committed it. So nothing is delivered again, and the hooks say which member has it.
func rebalance(s *scene) {
	s.topic(orders, 4)
	for p := range int32(4) {
		s.produce(p, int(p)*1000, 300)
	}
	c := &claims{s: s, owner: map[int32]string{}}
	first := s.join(slow(5*time.Millisecond), c.of("first"))
	s.affected(100)
	second := s.join(slow(5*time.Millisecond), c.of("second"))
	s.members(2)
	s.eventually(func() (bool, string) {
		held := c.held()
		return held["first"] == 2 && held["second"] == 2, fmt.Sprint(held)
	})
	for p := range int32(4) {
		s.produce(p, int(p)*1000+500, 100)
	}
	s.committed()
	first.leave()
	s.produce(2, 9000, 10)
	s.committed()
	s.eventually(func() (bool, string) {
		held := c.held()
		return held["first"] == 0 && held["second"] == 4, fmt.Sprint(held)
	})
	second.leave()
	assert.Empty(s, c.held(), "partitions that were not revoked")
	assert.GreaterOrEqual(s, c.moved, 8)
	s.once(1610)
	assert.Zero(s, s.noted("skipped"), "messages that were read again")
	assert.Empty(s, s.groupErrors())
}

// Messages of a former assignment do not reach the next one: when a partition comes back, it
// continues at the first message that no member has handled.
func comeAndGo(s *scene) {
	s.topic(orders, 2)
	stay := s.join(slow(2 * time.Millisecond))
	sent := 0
	for range 4 {
		s.produce(0, sent, 200)
		s.produce(1, sent+200, 200)
		sent += 400
		guest := s.join(slow(2 * time.Millisecond))
		s.members(2)
		guest.leave()
		s.members(1)
	}
	s.committed()
	stay.leave()
	s.once(sent)
}

// A member dies at work. No effect happens twice except those that the crash cut off, and no commit
// is ahead of a record.
func crash(s *scene) {
	s.lease = 4 * time.Second
	s.topic(orders, 4)
	mortal := func(m *Member) { m.Session = 2 * time.Second }
	sent := 0
	more := func() {
		for p := range int32(4) {
			s.produce(p, sent, 300)
			sent += 300
		}
	}
	more()
	first := s.join(slow(5*time.Millisecond), mortal)
	second := s.join(slow(5*time.Millisecond), mortal)
	s.members(2)
	s.committed()
	s.once(sent)
	more()
	s.affected(sent - 1000)
	first.crash()
	s.committed()
	second.leave()
	_ = first.wait()
	const atWork = 4 * 512 // ClaimAhead a partition: what a crash can leave without a record
	assert.LessOrEqual(s, s.totalEffects(), sent+atWork, "effects")
	assert.Len(s, s.effects, sent, "messages with an effect")
}

// The end of Run's context lets handlers end, and commits what they have done.
func closeDrains(s *scene) {
	s.topic(orders, 1)
	s.produce(0, 0, 3)
	g := newGateway()
	m := s.join(g.handle, draining(30*time.Second),
		func(m *Member) { m.Rebalance = time.Minute })
	s.eventually(func() (bool, string) { return g.running() == 3, "nothing runs" })
	m.cancel()
	select { // the drain
	case err := <-m.done:
		assert.Fail(s, "Run has returned while handlers run", "%v", err)
	case <-time.After(200 * time.Millisecond):
	}
	close(g.open)
	m.leave()
	assert.Empty(s, g.ended(), "handlers that were canceled")
	s.once(3)
	to, _ := s.cluster.Committed(group, orders, 0)
	assert.Equal(s, int64(3), to, "what is committed when Run returns")
}

// A handler that ends within the drain budget of a revoked partition is committed by the member
// that had it: the next member finds nothing to do.
func withinTheDrain(s *scene) {
	s.topic(orders, 2)
	s.produce(0, 0, 1)
	s.produce(1, 1, 1)
	patient := func(m *Member) { m.Rebalance = 2 * time.Minute } // more than drain and Handover
	g := newGateway()
	first := s.join(g.handle, draining(time.Minute), patient)
	s.eventually(func() (bool, string) { return g.running() == 2, "not both are delivered" })
	moved := make(chan struct{}, 1)
	second := s.join(nil, patient, configured(func(c *kafkaadapter.Config) {
		c.Observer.Delivered = func(*kafkaadapter.Message) { s.note("delivered again") }
		c.Observer.Assigned = func(string, int32, int32) {
			select { // it may be assigned more when the first has left, and nobody takes that
			case moved <- struct{}{}:
			default:
			}
		}
	}))
	s.joined(2)
	select { // the group waits for the drain
	case <-moved:
		assert.Fail(s, "a partition is somebody else's while its handler runs within the budget")
	case <-time.After(time.Second):
	}
	close(g.open)
	s.members(2)
	s.committed()
	first.leave()
	second.leave()
	s.once(2)
	assert.Zero(s, s.noted("delivered again"), "the revocation did not wait")
}

// A handler that takes longer is canceled, its claim is given back, and the next owner has its
// effect without waiting for the lease.
func beyondTheDrain(s *scene) {
	s.lease = 2 * patience
	s.topic(orders, 2)
	s.produce(0, 0, 20)
	s.produce(1, 20, 20)
	g := newGateway()
	first := s.join(g.handle, draining(200*time.Millisecond))
	<-g.inside
	second := s.join(nil)
	s.members(2)
	s.affected(20) // those of the partition that moved
	assert.NotEmpty(s, g.ended(), "nothing was canceled")
	first.leave()
	s.committed()
	second.leave()
	s.once(40)
}

// A handler that ignores its context keeps its claim, and nobody runs its message at the same time.
func deaf(s *scene) {
	s.topic(orders, 1)
	s.produce(0, 0, 1)
	g := newGateway()
	g.deaf = true
	first := s.join(g.handle, draining(100*time.Millisecond))
	<-g.inside
	first.cancel()
	waiting := make(chan struct{})
	var once sync.Once
	second := s.join(nil, configured(func(c *kafkaadapter.Config) {
		c.Observer.Waiting = func(*kafkaadapter.Message) { once.Do(func() { close(waiting) }) }
	}))
	<-waiting
	close(g.open)
	s.committed()
	s.once(1)
	second.leave()
	_ = first.wait()
}

// A member that drains for longer than its session stays in the group.
func longDrain(s *scene) {
	s.topic(orders, 2)
	g := newGateway()
	long := func(m *Member) {
		m.Session, m.Rebalance = 2*time.Second, 30*time.Second
		m.Config.Tuning.Drain = 20 * time.Second
	}
	first := s.join(g.handle, long)
	s.produce(0, 0, 1)
	s.produce(1, 10, 1)
	s.eventually(func() (bool, string) { return g.running() == 2, "nothing runs" })
	second := s.join(g.handle, long)
	s.joined(2)
	<-time.After(4 * time.Second) // nothing is to happen
	assert.Equal(s, 2, g.running(), "messages began elsewhere")
	close(g.open)
	s.committed()
	s.members(2)
	first.leave()
	second.leave()
	s.once(2)
	assert.Equal(s, 2, g.running(), "messages that ran again")
	for _, err := range s.groupErrors() {
		assert.NotErrorIs(s, err, kafkaadapter.ErrFenced)
	}
}
