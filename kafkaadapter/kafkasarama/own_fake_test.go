package kafkasarama

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

var (
	errFakeHeld     = errors.New("somebody else holds it")
	errFakeLost     = errors.New("the partition was lost")
	errFakeReleased = errors.New("the partition was released")
)

// fakeOwner grants partitions, and is the store of their owners. It answers as such a store must,
// and fails the test for calls that such a store could not accept.
type fakeOwner struct {
	dedup.Store
	r *rig

	mu       sync.Mutex
	refuse   map[int32][]error // of the next calls of Acquire
	asked    []kafkaadapter.Assigned
	held     map[int32]*fakeOwnership
	seen     map[int32]bool     // ever held
	told     map[int32]int      // calls of Misplaced
	deaf     int                // how many of the next of those calls fail
	foreign  map[driver.ID]bool // ids that must not be asked about, nor recorded, before Misplaced
	before   map[driver.ID]int  // calls of Misplaced when it was claimed
	refusal  error              // of every claim
	claims   map[int32]int      // that were asked for
	released map[int32]int
	slow     time.Duration         // of a completion, before it arrives
	recorded func(partition int32) // called by Release
}

// owning makes the consumer of r own its partitions.
func owning(r *rig, c *kafkaadapter.Config) *fakeOwner {
	o := &fakeOwner{
		Store: r.store, r: r, refuse: map[int32][]error{}, held: map[int32]*fakeOwnership{},
		seen: map[int32]bool{},
		told: map[int32]int{}, foreign: map[driver.ID]bool{}, before: map[driver.ID]int{},
		claims: map[int32]int{}, released: map[int32]int{},
	}
	r.dedup = r.over(o, nil)
	c.Deduper = r.dedup
	c.Own = &kafkaadapter.Owning{Acquire: o.acquire, Partitioner: kafkaadapter.Murmur2}
	return o
}

// acquire is Owning.Acquire.
func (o *fakeOwner) acquire(ctx context.Context,
	at kafkaadapter.Assigned) (kafkaadapter.Ownership, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, at)
	assert.NoError(o.r.t, ctx.Err(), "Acquire was called under a context that had ended")
	if errs := o.refuse[at.Partition]; len(errs) > 0 {
		o.refuse[at.Partition] = errs[1:]
		return nil, errs[0]
	}
	assert.Nil(o.r.t, o.held[at.Partition], "partition %d is asked for and held", at.Partition)
	h := &fakeOwnership{o: o, at: at}
	h.ctx, h.end = context.WithCancelCause(context.Background())
	o.held[at.Partition], o.seen[at.Partition] = h, true
	return h, nil
}

// lose takes a partition away.
func (o *fakeOwner) lose(partition int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held[partition].end(errFakeLost)
}

func (o *fakeOwner) refuseNext(partition int32, errs ...error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refuse[partition] = errs
}

func (o *fakeOwner) times(f func() int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return f()
}

func (o *fakeOwner) askedFor(partition int32) (all []kafkaadapter.Assigned) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.asked), func(a kafkaadapter.Assigned) bool {
		return a.Partition != partition
	})
}

func (o *fakeOwner) misplaced(partition int32) int {
	return o.times(func() int { return o.told[partition] })
}

// markForeign notes that messages with these ids are outside the partition of their key.
func (o *fakeOwner) markForeign(ids ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		key, err := driver.NewID("t", kafkaadapter.ScopeOf(groupName, topic), id)
		assert.NoError(o.r.t, err)
		o.foreign[key] = true
	}
}

// holds reports whether the partition is held now; the lock is taken.
func (o *fakeOwner) holds(partition int32) bool {
	h := o.held[partition]
	return h != nil && h.ctx.Err() == nil
}

// Claim implements dedup.Store.
func (o *fakeOwner) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := make([]driver.Answer, len(reqs))
	var pass []driver.ClaimRequest
	var at []int
	o.mu.Lock()
	for i, r := range reqs {
		p := r.Origin.Partition
		o.claims[p]++
		switch {
		case o.refusal != nil:
			answers[i].Err = o.refusal
		case !o.seen[p]:
			assert.Fail(o.r.t, "a key was claimed before its partition was owned", p)
			answers[i].Err = &dedup.InputError{Field: "Origin", Reason: "was never acquired"}
		case !o.holds(p):
			answers[i].Outcome = dedup.InFlight
		default:
			assert.False(o.r.t, o.foreign[r.ID] && o.told[p] == 0,
				"partition %d: a foreign key was claimed before anybody was told", p)
			o.before[r.ID] = o.told[p]
			pass, at = append(pass, r), append(at, i)
		}
	}
	o.mu.Unlock()
	for i, ans := range o.Store.Claim(ctx, pass) {
		answers[at[i]] = ans
	}
	return answers
}

// Finish implements dedup.Store: a key that is not owned is not recorded.
func (o *fakeOwner) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	answers := make([]driver.Answer, len(changes))
	var pass []driver.Finish
	var at []int
	o.mu.Lock()
	slow := o.slow
	o.mu.Unlock()
	if slow > 0 {
		<-time.After(slow)
	}
	o.mu.Lock()
	for i, c := range changes {
		if p := c.Origin.Partition; o.holds(p) {
			if o.foreign[c.ID] && c.State == driver.StateSucceeded {
				assert.Greater(o.r.t, o.told[p], o.before[c.ID],
					"partition %d: a foreign key was recorded before anybody was told again", p)
			}
			pass, at = append(pass, c), append(at, i)
		}
	}
	o.mu.Unlock()
	for i, ans := range o.Store.Finish(ctx, pass) {
		answers[at[i]] = ans
	}
	return answers
}

// fakeOwnership is a partition that is held.
type fakeOwnership struct {
	o   *fakeOwner
	at  kafkaadapter.Assigned
	ctx context.Context
	end context.CancelCauseFunc
}

// Context implements Ownership.
func (h *fakeOwnership) Context() context.Context { return h.ctx }

// Misplaced implements Ownership.
func (h *fakeOwnership) Misplaced(context.Context) error {
	h.o.mu.Lock()
	defer h.o.mu.Unlock()
	if h.o.deaf > 0 {
		h.o.deaf--
		return errors.New("nobody can be told")
	}
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx)
	}
	h.o.told[h.at.Partition]++
	return nil
}

// Release implements Ownership.
func (h *fakeOwnership) Release(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	assert.True(h.o.r.t, ok && ctx.Err() == nil && time.Until(deadline) <= 2*time.Second,
		"Release has a second")
	h.o.mu.Lock()
	recorded, lost := h.o.recorded, h.ctx.Err() != nil
	h.o.mu.Unlock()
	if recorded != nil && !lost {
		recorded(h.at.Partition)
	}
	h.o.mu.Lock()
	defer h.o.mu.Unlock()
	h.o.released[h.at.Partition]++
	if !assert.Same(h.o.r.t, h, h.o.held[h.at.Partition], "it was released twice") {
		return nil
	}
	delete(h.o.held, h.at.Partition)
	h.end(errFakeReleased)
	if lost {
		return errFakeLost
	}
	return nil
}

// wantReleased requires that nothing is held, and how often a partition was released.
func (o *fakeOwner) wantReleased(partition int32, n int) {
	o.r.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	assert.Equal(o.r.t, n, o.released[partition], "releases of partition %d", partition)
	assert.Nil(o.r.t, o.held[partition], "partition %d is still held", partition)
}

// keysOf returns n keys that belong to a partition, of count partitions.
func keysOf(partition, count int32, n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprint("key", i); kafkaadapter.Murmur2([]byte(key), count) == partition {
			keys = append(keys, key)
		}
	}
	return keys
}

// wantReleasedSoFar requires that a partition is held, and how often it was released before.
func (o *fakeOwner) wantReleasedSoFar(partition int32, n int) {
	o.r.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	assert.Equal(o.r.t, n, o.released[partition], "releases of partition %d", partition)
	assert.True(o.r.t, o.holds(partition), "partition %d is not held", partition)
}
