package franz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
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
	refuse   int // of the next calls of Own, for any partition
	asked    []Assigned
	held     map[int32]*ownership
	told     map[int32]int
	released int
}

type ownership struct {
	o   *owner
	at  Assigned
	ctx context.Context
	end context.CancelCauseFunc
}

// owned has a member own its partitions.
func (r *rig) owned(c *Config) *owner {
	r.t.Helper()
	o := &owner{Store: r.store, r: r, held: map[int32]*ownership{}, told: map[int32]int{}}
	d, err := dedup.New(o, dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: r.lease,
		Hold: time.Minute})
	if err != nil {
		r.t.Fatal(err)
	}
	c.Deduper, c.Own, c.Partitioner = d, o.own, Murmur2
	return o
}

func (o *owner) own(_ context.Context, at Assigned) (Ownership, error) {
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
			if o.held[q.Origin.Partition] == nil {
				o.r.t.Errorf("partition %d: a key was claimed that nobody owned",
					q.Origin.Partition)
			}
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
// of it is on record. What does not lie where its key says is told of.
func TestOwn(t *testing.T) {
	eachMode(t, func(t *testing.T, mode mode) {
		r := newRig(t, mode, 2)
		var there string
		for i := 0; there == ""; i++ {
			if key := fmt.Sprint("key", i); Murmur2([]byte(key), 2) == 1 {
				there = key
			}
		}
		at := func(p int32, id string) *kgo.Record {
			return &kgo.Record{Topic: orders, Partition: p, Key: []byte(there), Value: []byte(id),
				Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(id)}}}
		}
		r.send(at(0, "evt_a"), at(1, "evt_b"))
		var o *owner
		m := r.join(nil, func(c *Config) {
			o = r.owned(c)
			o.refuse = 4
		})
		r.committed()
		m.leave()
		r.once(2)
		o.look(func() {
			if len(o.asked) != 6 || o.asked[0].Group != group || o.asked[0].Topic != orders ||
				o.asked[0].Count != 2 || o.asked[0].Generation < 1 {
				t.Errorf("asked for %+v", o.asked)
			}
			if o.told[0] == 0 || o.told[1] > 0 || o.released != 2 {
				t.Errorf("told %v, released %d", o.told, o.released)
			}
		})
	})
}

// A partition that is lost cancels what runs and is owned again; nothing is revoked, and the
// other one does not notice.
func TestOwnIsLost(t *testing.T) {
	eachMode(t, func(t *testing.T, mode mode) {
		r := newRig(t, mode, 2)
		r.lease = 3 * time.Second // nobody gives back the claim of what was lost
		r.produce(0, 0, 1)
		inside, once := make(chan struct{}), sync.Once{}
		var o *owner
		var mu sync.Mutex
		var causes []error
		m := r.join(func(ctx context.Context, m *Message) error {
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
		}, func(c *Config) { o = r.owned(c) })
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
		if n := r.noted("revoked"); n > 0 {
			t.Errorf("%d partitions were revoked", n)
		}
		m.leave()
		r.once(21)
		o.look(func() {
			again := slices.DeleteFunc(slices.Clone(o.asked), func(a Assigned) bool {
				return a.Partition != 0
			})
			if len(again) != 5 || o.released != 3 {
				t.Errorf("partition 0 was asked for %d times; released %d times in all", len(again),
					o.released)
			}
		})
		if !errors.Is(causes[0], errGone) || !errors.Is(causes[0], dedup.ErrLeaseLost) {
			t.Errorf("the handler ended with %v", causes[0])
		}
	})
}

// Partitions are added: they are counted again at the next assignment.
func TestOwnCountsAgain(t *testing.T) {
	r := newRig(t, eager, 2)
	r.produce(0, 0, 1)
	var o *owner
	m := r.join(nil, func(c *Config) {
		o = r.owned(c)
	}, kgo.MetadataMinAge(50*time.Millisecond), kgo.MetadataMaxAge(100*time.Millisecond))
	r.committed()
	more := kmsg.NewPtrCreatePartitionsRequest()
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = orders, 3
	more.Topics = append(more.Topics, topic)
	if answer, err := more.RequestWith(t.Context(), r.client); err != nil ||
		answer.Topics[0].ErrorCode != 0 {
		t.Fatal(answer, err)
	}
	r.eventually(func() (bool, string) {
		var all []Assigned
		held := 0
		o.look(func() { all, held = slices.Clone(o.asked), len(o.held) })
		return all[len(all)-1].Count == 3 && held == 3, fmt.Sprint(all)
	})
	m.leave()
}

// What is refused as a whole stops the consumer, and the settings must fit each other.
func TestOwnIsRefused(t *testing.T) {
	r := newRig(t, eager, 1)
	m := r.join(nil, func(c *Config) {
		r.owned(c)
		c.Own = func(context.Context, Assigned) (Ownership, error) {
			return nil, &dedup.InputError{Field: "Lease", Reason: "is too short"}
		}
	})
	var input *dedup.InputError
	if err := m.wait(); !errors.As(err, &input) || input.Field != "Lease" {
		t.Errorf("Run: %v", err)
	}
	cfg := r.config(&link{Store: r.store}, nil)
	r.owned(&cfg)
	cfg.Drain = time.Second + time.Millisecond
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context(), r.options(newLine())...); !errors.As(err, &input) ||
		input.Field != "kgo.RebalanceTimeout" {
		t.Errorf("1 s and 4 s in a rebalance of 5 s: %v", err)
	}
	cfg.Partitioner = nil
	if _, err := New(cfg); !errors.As(err, &input) || input.Field != "franz.Config.Partitioner" {
		t.Errorf("New: %v", err)
	}
}
