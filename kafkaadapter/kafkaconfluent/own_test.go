package kafkaconfluent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

var (
	errHeld = errors.New("somebody else holds it")
	errGone = errors.New("the partition was lost")
)

// owner gives partitions away, and is the store of the member that has them.
type owner struct {
	dedup.Store
	r *rig

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

// owned has a member own its partitions.
func (r *rig) owned(c *kafkaadapter.Config) *owner {
	r.t.Helper()
	o := &owner{Store: r.store, r: r, held: map[int32]*ownership{}, told: map[int32]int{}}
	c.Deduper = r.deduper(o)
	c.Own = &kafkaadapter.Owning{Acquire: o.acquire, Partitioner: kafkaadapter.Murmur2}
	return o
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

// Claim implements dedup.Store.
func (o *owner) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	o.look(func() {
		for _, q := range reqs {
			assert.NotNil(o.r.t, o.held[q.Origin.Partition],
				"a key of partition %d was claimed that nobody owned", q.Origin.Partition)
		}
	})
	return o.Store.Claim(ctx, reqs)
}

// Finish implements dedup.Store.
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

func (h *ownership) Context() context.Context { return h.ctx }

func (h *ownership) Misplaced(context.Context) error {
	h.o.look(func() { h.o.told[h.at.Partition]++ })
	return context.Cause(h.ctx)
}

func (h *ownership) Release(context.Context) error {
	h.o.look(func() {
		h.o.released++
		delete(h.o.held, h.at.Partition)
	})
	h.end(context.Canceled)
	return nil
}

// A partition is owned before its first message is claimed, and given back when everything
// of it is on record. A message outside the partition of its key is reported.
func TestOwn(t *testing.T) {
	eachMode(t, func(t *testing.T, mode mode) {
		r := newRig(t, mode, 2)
		var there string
		for i := 0; there == ""; i++ {
			if key := fmt.Sprint("key", i); kafkaadapter.Murmur2([]byte(key), 2) == 1 {
				there = key
			}
		}
		at := func(p int32, id string) *kgo.Record {
			return &kgo.Record{Topic: orders, Partition: p, Key: []byte(there), Value: []byte(id),
				Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}}
		}
		r.send(at(0, "evt_a"), at(1, "evt_b"))
		var o *owner
		m := r.join(nil, func(c *kafkaadapter.Config) {
			o = r.owned(c)
			o.refuse = 4
		}, nil)
		r.committed()
		m.leave()
		r.once(2)
		o.look(func() {
			if assert.Len(t, o.asked, 6) {
				assert.Equal(t, kafkaadapter.Assigned{Group: group, Topic: orders, Count: 2,
					Partition: o.asked[0].Partition}, o.asked[0]) // no generation
			}
			assert.NotZero(t, o.told[0], "the store was not told of what is misplaced")
			assert.Zero(t, o.told[1])
			assert.Equal(t, 2, o.released)
		})
	})
}

// A partition that is lost cancels what runs and is owned again; nothing is revoked, and the
// other one does not notice.
func TestOwnIsLost(t *testing.T) {
	eachMode(t, func(t *testing.T, mode mode) {
		r := newRig(t, mode, 2)
		r.produce(0, 0, 1)
		inside, once := make(chan struct{}), sync.Once{}
		var o *owner
		var mu sync.Mutex
		var causes []error
		m := r.join(func(ctx context.Context, m *kafkaadapter.Message) error {
			first := false
			once.Do(func() { first = true })
			if !first {
				return nil
			}
			close(inside)
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			causes = append(causes, context.Cause(ctx))
			return context.Cause(ctx)
		}, func(c *kafkaadapter.Config) { o = r.owned(c) }, nil)
		<-inside
		// or some of what is refused is not of partition 0
		r.eventually(func() (both bool, _ string) {
			o.look(func() { both = len(o.held) == 2 })
			return both, "the other partition is not owned"
		})
		o.look(func() { o.refuse = 3; o.held[0].end(errGone) })
		r.produce(1, 1, 10)
		r.produce(0, 11, 10)
		r.committed()
		assert.Zero(t, r.noted("revoked"), "partitions that were revoked")
		m.leave()
		r.once(21)
		o.look(func() {
			again := slices.DeleteFunc(slices.Clone(o.asked), func(a kafkaadapter.Assigned) bool {
				return a.Partition != 0
			})
			assert.Len(t, again, 5, "calls of Acquire for partition 0")
			assert.Equal(t, 3, o.released, "releases in all")
		})
		require.ErrorIs(t, causes[0], errGone)
		require.ErrorIs(t, causes[0], dedup.ErrLeaseLost)
	})
}

// A partition that is refused stops the consumer, and the settings must fit each other.
func TestOwnIsRefused(t *testing.T) {
	r := newRig(t, eager, 1)
	m := r.join(nil, func(c *kafkaadapter.Config) {
		r.owned(c)
		c.Own.Acquire = func(context.Context, kafkaadapter.Assigned) (kafkaadapter.Ownership,
			error) {
			return nil, &dedup.InputError{Field: "Lease", Reason: "is too short"}
		}
	}, nil)
	wantInput(t, m.wait(), "Lease")
	cfg := r.config(r.store, nil)
	r.owned(&cfg)
	cfg.Tuning.Drain = 56*time.Second + time.Millisecond // and 4 s, in a minute
	c, err := New(group, cfg)
	require.NoError(t, err)
	wantInput(t, c.Run(t.Context(), r.properties(nil), []string{orders}),
		"kafka.ConfigMap.max.poll.interval.ms")
	cfg.Own.Partitioner = nil
	_, err = New(group, cfg)
	wantInput(t, err, "kafkaadapter.Config.Own.Partitioner")
}
