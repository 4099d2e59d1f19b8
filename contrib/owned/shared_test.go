package owned

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
)

// beginOf puts a batch on record as the owner does, and returns the name of its field.
func (o *Ownership) beginOf(t testing.TB, ids ...driver.ID) string {
	t.Helper()
	o.mu.Lock()
	o.fields++
	f := script.Field{Name: script.FieldName(o.epoch, o.fields),
		Blob: script.Blob(membersOf(o, ids)...)}
	o.mu.Unlock()
	reply := o.s.send(t.Context(),
		script.NewBatch(o.keys(), o.self(),
			&script.Batch{Begin: []script.Field{f}}))[0]
	require.NoError(t, reply.Err)
	require.Equal(t, script.AnswerDone, reply.Answer, "the answer to a begin")
	return f.Name
}

// endOf marks what has begun, in one script.
func (o *Ownership) endOf(t testing.TB, field string, ids ...driver.ID) {
	t.Helper()
	o.mu.Lock()
	gen, n := o.set(len(ids))
	o.mu.Unlock()
	reply := o.s.send(t.Context(), script.NewBatch(o.keys(), o.self(), &script.Batch{
		Fresh: o.names.fresh(gen, n), Gen: gen, N: n, Ended: []string{field},
		Marks: membersOf(o, ids),
	}))[0]
	require.NoError(t, reply.Err)
	require.Equal(t, script.AnswerDone, reply.Answer, "the answer to an end")
}

// owners are one process for each of the partitions of one source.
func owners(t testing.TB, client redis.UniversalClient, prefix string, n int32) []*Ownership {
	t.Helper()
	var all []*Ownership
	for number := range n {
		s := plainStore(t, client, fewBuckets(prefix))
		all = append(all, takeLoaded(t, s, Partition{Source: "g/t", Number: number, Count: n}))
	}
	return all
}

// TestElsewhere: askOthers finds the keys that other owners have done, that they are running, and
// that they were running when they died.
func TestElsewhere(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		all := owners(t, b.Client, b.Prefix, 3)
		ids := idsOf(t, "k", 5)
		all[1].mark(t, ids[:1])
		all[1].nextSet()
		all[1].mark(t, idsOf(t, "more", 3)) // and folded below
		noErr(t, all[1].fold(t.Context()))
		all[2].beginOf(t, ids[1])
		all[1].beginOf(t, ids[2])
		noErr(t, b.Client.Del(t.Context(), all[1].names.own).Err()) // dies
		again := takeLoaded(t, plainStore(t, b.Client, fewBuckets(b.Prefix)),
			Partition{Source: "g/t", Number: 1, Count: 3})
		again.beginOf(t, ids[2], ids[3])
		noErr(t, b.Client.Del(t.Context(), again.names.own).Err())
		all[0].mark(t, ids[4:]) // its own, which does not count as an answer
		found, err := all[0].askOthers(t.Context(), membersOf(all[0], ids))
		noErr(t, err)
		want := []remoteState{{done: true}, {live: true}, {runs: 2}, {runs: 1}, {}}
		assert.Equal(t, want, found)
	})
}

// TestElsewhereWhileItEnds ends a key in another partition while it is looked for. Between the look
// at head and the ask the key moves from run to a newer set, or to a bucket. If the ask missed it
// there, the key would run a second time.
func TestElsewhereWhileItEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, o *Ownership, field string, id driver.ID){
		"in the same set": func(t *testing.T, o *Ownership, field string, id driver.ID) {
			o.endOf(t, field, id)
		},
		"in a new set": func(t *testing.T, o *Ownership, field string, id driver.ID) {
			o.nextSet()
			o.endOf(t, field, id)
		},
		"in a bucket": func(t *testing.T, o *Ownership, field string, id driver.ID) {
			o.endOf(t, field, id)
			o.nextSet()
			o.mark(t, idsOf(t, "later", 1))
			noErr(t, o.fold(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := redistest.Mini(t)
			for step := int64(1); step < 8; step++ {
				all := owners(t, client, fmt.Sprint("p", step), 2)
				all[1].mark(t, idsOf(t, "earlier", 3))
				id := idsOf(t, "k", 1)[0]
				field := all[1].beginOf(t, id)
				hooked := redistest.Patient(t, client.Options().Addr)
				hooked.AddHook(&stepper{do: func(n int64) {
					if n == step {
						end(t, all[1], field, id)
					}
				}})
				all[0].s.client, all[0].s.runner = hooked, script.NewRunner(hooked)
				found, err := all[0].askOthers(t.Context(), []int64{all[0].s.members.of(&id)})
				all[0].s.client, all[0].s.runner = client, script.NewRunner(client)
				noErr(t, err)
				assert.False(t, !found[0].done && !found[0].live, "step %d: found %+v", step,
					found[0])
				for _, o := range all {
					letGo(t, o)
				}
			}
		})
	}
}

// TestElsewhereCountGrows: askOthers also asks a partition that is newer than this ownership.
func TestElsewhereCountGrows(t *testing.T) {
	_, client := redistest.Mini(t)
	all := owners(t, client, "grow", 2)
	s := plainStore(t, client, fewBuckets("grow"))
	third := takeLoaded(t, s, Partition{Source: "g/t", Number: 2, Count: 3})
	id := idsOf(t, "k", 1)[0]
	third.mark(t, []driver.ID{id})
	found, err := all[0].askOthers(t.Context(), []int64{s.members.of(&id)})
	noErr(t, err)
	assert.True(t, found[0].done, "a partition that is new was not asked")
}

// TestElsewhereLostRemap: a server that has lost a change of the mapping gets it again, and its
// partition is shared.
func TestElsewhereLostRemap(t *testing.T) {
	_, client := redistest.Mini(t)
	owners(t, client, "behind", 2)
	s := plainStore(t, client, fewBuckets("behind"))
	noErr(t, s.Close(t.Context()))
	s = plainStore(t, client, fewBuckets("behind"))
	first := takeLoaded(t, s, Partition{Source: "g/t", Number: 2, Count: 3})
	client.HSet(t.Context(), first.nameOf(1).head, "mapver", 1, "shared", 0)
	_, err := first.askOthers(t.Context(), []int64{2})
	noErr(t, err)
	heads, err := readHeads(t.Context(), client, []string{first.nameOf(1).head})
	noErr(t, err)
	h := heads[0]
	assert.EqualValues(t, 2, h.MapVersion, "its head")
	assert.GreaterOrEqual(t, h.SharedUntil,
		time.Duration(time.Now().UnixNano())+s.registry.span()-time.Minute)
}

func (o *Ownership) nameOf(number int32) names {
	return newNames(o.s.opts.Prefix, o.part.Source, number)
}

// TestElsewhereAmnesia: askOthers fails if another partition may have lost marks.
func TestElsewhereAmnesia(t *testing.T) {
	_, client := redistest.Mini(t)
	all := owners(t, client, "gone", 2)
	client.Del(t.Context(), all[1].names.head)
	_, err := all[0].askOthers(t.Context(), []int64{2})
	assert.ErrorIs(t, err, ErrAmnesia, "without a head")
}

// TestElsewhereMany asks for more than fits one call, and more partitions than fit one pipeline.
func TestElsewhereMany(t *testing.T) {
	_, client := redistest.Mini(t)
	s := plainStore(t, client, fewBuckets("many"))
	last := takeLoaded(t, s, Partition{Source: "g/t", Number: partsAtOnce + 5,
		Count: partsAtOnce + 6})
	first := takeLoaded(t, s, Partition{Source: "g/t", Number: 0, Count: partsAtOnce + 6})
	ids := idsOf(t, "k", askAtOnce+10)
	last.mark(t, ids[3:])
	found, err := first.askOthers(t.Context(), membersOf(first, ids))
	noErr(t, err)
	for i, f := range found {
		assert.Equal(t, i >= 3, f.done)
	}
}

// TestMisplaced: when it returns, no partition of the source accepts a begin. The next calls cost
// nothing until a sixteenth of the window has passed.
func TestMisplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		opts := fewBuckets("mis")
		opts.Window = 16 * time.Hour
		var mu sync.Mutex
		var told []string
		opts.Observer.FilterState = func(e dedup.Event) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e.Reason)
		}
		s := plainStore(t, client, opts)
		s.registry.batch = 1 // a pipe holds nothing: both ends would be writing
		o := takeLoaded(t, s, Partition{Source: "g/t", Number: 0, Count: 3})
		id := idsOf(t, "k", 1)[0]
		o.beginOf(t, id)
		steps := &stepper{do: func(int64) {}}
		client.AddHook(steps)
		mu.Lock()
		told = nil
		mu.Unlock()
		noErr(t, o.Misplaced(t.Context()))
		synctest.Wait()
		mu.Lock()
		assert.Contains(t, told, "shared", "the observer was told")
		mu.Unlock()
		span := opts.Window + opts.Hold
		until := func() (least time.Duration) {
			heads, err := s.registry.heads(t.Context(), "g/t", 3)
			noErr(t, err)
			least = heads[0].SharedUntil
			for _, h := range heads {
				least = min(least, h.SharedUntil)
			}
			return least - time.Duration(time.Now().UnixNano())
		}
		assert.GreaterOrEqual(t, until(), span+time.Hour-time.Second)
		reply := s.send(t.Context(),
			script.NewBatch(o.keys(), o.self(), &script.Batch{
				Begin: []script.Field{{Name: "1:99", Blob: script.Blob(2)}},
			}))[0]
		assert.Equal(t, script.AnswerShared, reply.Answer, "the answer to a begin")
		assert.True(t, o.isShared(), "the owner has not heard of it")
		time.Sleep(time.Hour - time.Minute)
		renewed := steps.n.Load()
		for range 5 {
			noErr(t, o.Misplaced(t.Context()))
		}
		assert.Equal(t, renewed, steps.n.Load(), "commands within a step")
		time.Sleep(2 * time.Minute)
		noErr(t, o.Misplaced(t.Context()))
		assert.GreaterOrEqual(t, until(), span+time.Hour-time.Second, "after a step shared")
		letGo(t, o)
		assert.ErrorIs(t, o.Misplaced(t.Context()), ErrReleased, "after Release")
	})
}

// TestMisplacedKilledAnywhere: Misplaced never returns nil before it has reached all partitions.
func TestMisplacedKilledAnywhere(t *testing.T) {
	_, client := redistest.Mini(t)
	for _, after := range []bool{false, true} {
		for at := int64(1); ; at++ {
			prefix := fmt.Sprintf("m%t%d", after, at)
			s := plainStore(t, client, fewBuckets(prefix))
			o := takeLoaded(t, s, Partition{Source: "g/t", Number: 0, Count: 5})
			plainStore(t, client, fewBuckets(prefix)).mustMap(t, 7)
			dying := redistest.Client(t,
				&redis.Options{Addr: client.Options().Addr, MaxRetries: -1})
			hook := &saboteur{at: at, after: after}
			dying.AddHook(hook)
			whole := s.registry.client
			s.registry.client, s.registry.runner, s.registry.batch = dying,
				script.NewRunner(dying), 2
			err := o.Misplaced(t.Context())
			s.registry.client, s.registry.runner = whole, script.NewRunner(whole)
			assert.NotEqual(t, hook.struck.Load(), err == nil, "cut at %d, %t", at, after)
			if err != nil {
				// it has heard that there are more
				if err = o.Misplaced(t.Context()); errors.Is(err, ErrLost) {
					letGo(t, o)
					o = takeLoaded(t, s, Partition{Source: "g/t", Number: 0, Count: 7})
					err = o.Misplaced(t.Context())
				}
				noErr(t, err)
			}
			heads, err := s.registry.heads(t.Context(), "g/t", 7)
			noErr(t, err)
			for i, h := range heads {
				assert.GreaterOrEqual(t, h.SharedUntil, time.Duration(time.Now().Add(s.opts.Window+
					s.opts.Hold).UnixNano()), "cut at %d, %t: partition %d is shared until", at, after, i)
			}
			letGo(t, o)
			if !hook.struck.Load() {
				assert.GreaterOrEqual(t, at, int64(6), "the test does not cut where it should")
				break
			}
		}
	}
}

// mustMap raises the count of partitions.
func (s *Store) mustMap(t testing.TB, count int32) {
	t.Helper()
	_, err := s.registry.mapped(t.Context(),
		&Partition{Source: "g/t", Count: count, Mapping: "default"})
	noErr(t, err)
}

// TestMisplacedWaits for the call that is under way, until its context ends.
func TestMisplacedWaits(t *testing.T) {
	_, client := redistest.Mini(t)
	o := takeLoaded(t, plainStore(t, client, fewBuckets("wait")), somePartition)
	o.s.registry.sharing <- struct{}{}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errCut)
	assert.ErrorIs(t, o.Misplaced(ctx), errCut, "with a context that has ended")
	<-o.s.registry.sharing
	assert.Error(t, o.Misplaced(nil), "without a context") //nolint:staticcheck // that is the point
}
