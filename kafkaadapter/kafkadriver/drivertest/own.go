package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

var (
	errHeld = errors.New("somebody else holds it")
	errGone = errors.New("the partition was lost")
)

// owner grants partitions to a member, and is also the member's store.
type owner struct {
	dedup.Store
	s *scene

	mu       sync.Mutex
	refuse   int // of the next calls of Acquire, for any partition
	asked    []kafkaadapter.Assigned
	held     map[int32]*ownership
	told     map[int32]int
	released int
}

type ownership struct {
	o   *owner
	at  kafkaadapter.Assigned
	ctx context.Context
	end context.CancelCauseFunc
}

// owning makes a member own its partitions.
func (s *scene) owning(o *owner) change {
	*o = owner{Store: s.store, s: s, refuse: o.refuse, held: map[int32]*ownership{},
		told: map[int32]int{}}
	return configured(func(c *kafkaadapter.Config) {
		c.Deduper = s.deduper(o)
		c.Own = &kafkaadapter.Owning{Acquire: o.acquire, Partitioner: kafkaadapter.Murmur2}
	})
}

func (o *owner) acquire(_ context.Context, at kafkaadapter.Assigned) (kafkaadapter.Ownership,
	error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, at)
	if o.refuse > 0 {
		o.refuse--
		return nil, errHeld
	}
	if o.held[at.Partition] != nil {
		return nil, errHeld
	}
	h := &ownership{o: o, at: at}
	h.ctx, h.end = context.WithCancelCause(context.Background())
	o.held[at.Partition] = h
	return h, nil
}

func (o *owner) look(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

// Claim implements [dedup.Store].
func (o *owner) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	o.look(func() {
		for _, q := range reqs {
			assert.NotNil(o.s, o.held[q.Origin.Partition],
				"a key of partition %d was claimed that nobody owned", q.Origin.Partition)
		}
	})
	return o.Store.Claim(ctx, reqs)
}

// Finish implements [dedup.Store].
func (o *owner) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	answers := make([]driver.Answer, len(changes))
	for i, c := range changes {
		held := false
		o.look(func() { h := o.held[c.Origin.Partition]; held = h != nil && h.ctx.Err() == nil })
		if held {
			answers[i] = o.Store.Finish(ctx, changes[i:i+1])[0]
		}
	}
	return answers
}

// Context implements [kafkaadapter.Ownership].
func (h *ownership) Context() context.Context { return h.ctx }

// Misplaced implements [kafkaadapter.Ownership].
func (h *ownership) Misplaced(context.Context) error {
	h.o.look(func() { h.o.told[h.at.Partition]++ })
	return context.Cause(h.ctx)
}

// Release implements [kafkaadapter.Ownership].
func (h *ownership) Release(context.Context) error {
	h.o.look(func() {
		h.o.released++
		delete(h.o.held, h.at.Partition)
	})
	h.end(context.Canceled)
	return nil
}

// A partition is owned before its first message is claimed, and released after all its messages are
// on record. A message outside the partition of its key is reported.
func owned(s *scene) {
	s.topic(orders, 2)
	var there string
	for i := 0; there == ""; i++ {
		if key := fmt.Sprint("key", i); kafkaadapter.Murmur2([]byte(key), 2) == 1 {
			there = key
		}
	}
	a, b := message(orders, 0, "evt_a"), message(orders, 1, "evt_b")
	a.Key, b.Key = []byte(there), []byte(there)
	s.send(a, b)
	o := &owner{refuse: 4}
	m := s.join(nil, s.owning(o))
	s.committed()
	m.leave()
	s.once(2)
	o.look(func() {
		require.Len(s, o.asked, 6)
		first := o.asked[0]
		assert.Equal(s, kafkaadapter.Assigned{Group: group, Topic: orders, Count: 2,
			Partition: first.Partition, Generation: first.Generation}, first)
		assert.NotZero(s, o.told[0], "the misplaced message was not reported")
		assert.Zero(s, o.told[1])
		assert.Equal(s, 2, o.released)
	})
}

// When a partition is lost, its running handlers are canceled and it is acquired again. Nothing is
// revoked, and the other partition does not notice.
func ownLost(s *scene) {
	s.lease = 3 * time.Second // nobody gives back the claims of the lost partition
	s.topic(orders, 2)
	s.produce(0, 0, 1)
	g := newGateway()
	var first sync.Once
	o := &owner{}
	m := s.join(func(ctx context.Context, m *kafkaadapter.Message) (err error) {
		first.Do(func() { err = g.handle(ctx, m) })
		return err
	}, s.owning(o))
	<-g.inside
	// otherwise some of the refused calls of Acquire would not be for partition 0
	s.eventually(func() (both bool, _ string) {
		o.look(func() { both = len(o.held) == 2 })
		return both, "the other partition is not owned"
	})
	o.look(func() { o.refuse = 3; o.held[0].end(errGone) })
	s.produce(1, 1, 10)
	s.produce(0, 11, 10)
	s.committed()
	assert.Zero(s, s.noted("revoked"), "partitions that were revoked")
	m.leave()
	s.once(21)
	o.look(func() {
		again := slices.DeleteFunc(slices.Clone(o.asked), func(a kafkaadapter.Assigned) bool {
			return a.Partition != 0
		})
		assert.Len(s, again, 5, "calls of Acquire for partition 0")
		assert.Equal(s, 3, o.released, "releases in all")
	})
	require.NotEmpty(s, g.ended())
	require.ErrorIs(s, g.ended()[0], errGone)
	require.ErrorIs(s, g.ended()[0], dedup.ErrLeaseLost)
}

// Both Owning.Acquire and the hook Assigned get the generation of the group.
func ownGeneration(s *scene) {
	s.topic(orders, 1)
	s.produce(0, 0, 1)
	o := &owner{}
	told := make(chan int32, 1)
	m := s.join(nil, s.owning(o), configured(func(c *kafkaadapter.Config) {
		c.Observer.Assigned = func(_ string, _, generation int32) { told <- generation }
	}))
	s.committed()
	m.leave()
	require.Len(s, o.asked, 1)
	assert.Positive(s, o.asked[0].Generation)
	assert.Equal(s, o.asked[0].Generation, <-told)
}

// Partitions are added: the members read them, and ask for their number again.
func partitionsAdded(s *scene) {
	s.topic(orders, 2)
	s.produce(0, 0, 5)
	o := &owner{}
	m := s.join(nil, s.owning(o))
	s.committed()
	require.NoError(s, s.cluster.AddPartitions(s.Context(), orders, 3))
	s.produce(2, 5, 5)
	s.eventually(func() (bool, string) {
		var all []kafkaadapter.Assigned
		held := 0
		o.look(func() { all, held = slices.Clone(o.asked), len(o.held) })
		return all[len(all)-1].Count == 3 && held == 3, fmt.Sprint(all)
	})
	s.affected(10)
	m.leave()
	s.committed()
	s.once(10)
}

// A partition that is refused for good stops the consumer.
func ownRefused(s *scene) {
	s.topic(orders, 1)
	m := s.join(nil, s.owning(&owner{}), configured(func(c *kafkaadapter.Config) {
		c.Own.Acquire = func(context.Context, kafkaadapter.Assigned) (kafkaadapter.Ownership,
			error) {
			return nil, &dedup.InputError{Field: "Lease", Reason: "is too short"}
		}
	}))
	var input *dedup.InputError
	require.ErrorAs(s, m.wait(), &input)
	assert.Equal(s, "Lease", input.Field)
}
