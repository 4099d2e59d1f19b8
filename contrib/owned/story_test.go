package owned

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// The stories use a partition, and the times of a small deployment.
var only = Partition{Source: "group/topic", Number: 0, Count: 1, Generation: 1}

const (
	storyLease = 3 * time.Second // of a claim
	storyHold  = 10 * time.Minute
)

func storyOptions() Options {
	return Options{
		Prefix: "t", Secret: []byte("a secret of the tests"), Window: time.Hour, Hold: storyHold,
		Lease: 10 * time.Second, ExpectedKeys: 1000,
	}
}

// world is a Redis in fake time, and the processes that use it.
type world struct {
	*testing.T
	client *redis.Client
	opts   Options
}

// story runs a test in fake time.
func story(t *testing.T, tell func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		w := &world{T: t, client: client, opts: storyOptions()}
		must(t, Init(t.Context(), client, w.opts))
		tell(w)
	})
}

// process starts one: a Store of its own over the inner store that all share.
func (w *world) process() *Store {
	w.Helper()
	inner, err := redisadapter.New(w.Context(), w.client,
		redisadapter.Options{Prefix: "in", WrappedBy: Name})
	must(w, err)
	s, err := New(w.Context(), w.client, inner, w.opts)
	must(w, err)
	w.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// own acquires the partition, and waits for its filter.
func (w *world) own(s *Store) *Ownership {
	w.Helper()
	o, err := s.Acquire(w.Context(), only)
	must(w, err)
	synctest.Wait()
	require.True(w, o.loaded.Load(), "the filter was not loaded")
	return o
}

// crash ends a process while it works: nothing is released, and nothing is renewed any more.
func (w *world) crash(s *Store) {
	s.mu.Lock()
	s.closed = true
	over := s.over
	var held []*Ownership
	for _, o := range s.held {
		held = append(held, o)
	}
	s.mu.Unlock()
	s.nudge()
	<-over
	for _, o := range held {
		o.released.Store(true)
		o.lose(ErrReleased)
	}
}

// freeze lets the partition's lease run out without its owner noticing.
func (w *world) freeze(o *Ownership, d time.Duration) {
	o.renewing.Store(true)
	time.Sleep(d)
	o.renewing.Store(false)
}

// pass lets time pass, in the bubble of a story.
func pass(d time.Duration) { time.Sleep(d) }

func request(n int) driver.ClaimRequest {
	id := driver.ID{1, byte(n >> 8), byte(n)}
	token := driver.Token{byte(n >> 8), byte(n)}
	now := nth.Add(1)
	token[8], token[9] = byte(now>>8), byte(now)
	return driver.ClaimRequest{
		ID: id, Token: token, Lease: storyLease, Hold: storyHold,
		Origin: driver.Origin{Source: only.Source, Partition: only.Number, Offset: int64(n),
			Generation: 1},
	}
}

var nth atomic.Int64

func success(r *driver.ClaimRequest) driver.Finish {
	return driver.Finish{
		ID: r.ID, Token: r.Token, Attempt: 1, State: driver.StateSucceeded, Lease: r.Lease,
		Hold: r.Hold, Window: time.Hour, EffectApplied: true, Origin: r.Origin,
	}
}

func (w *world) claim(s *Store, r driver.ClaimRequest) driver.Answer {
	w.Helper()
	a := s.Claim(w.Context(), []driver.ClaimRequest{r})[0]
	require.NoError(w, a.Err)
	return a
}

func (w *world) finish(s *Store, c driver.Finish) driver.Answer {
	w.Helper()
	a := s.Finish(w.Context(), []driver.Finish{c})[0]
	require.NoError(w, a.Err)
	return a
}

// wants requires the outcome and the attempt of a claim.
func (w *world) wants(what string, a driver.Answer, outcome driver.Outcome, attempt int) {
	w.Helper()
	assert.Equal(w, outcome, a.Outcome, what)
	assert.False(w, attempt > 0 && a.Record.Attempt != attempt, "%s: want %v, attempt %d, got %+v",
		what, outcome, attempt, a)
}

// TestAStaleOwnerChangesNothing: an owner that was frozen past its lease, and replaced, neither
// begins nor marks anything.
func TestAStaleOwnerChangesNothing(t *testing.T) {
	story(t, func(w *world) {
		t := w.T
		old, next := w.process(), w.process()
		was := w.own(old)
		r := request(1)
		w.wants("a new key", w.claim(old, r), dedup.Acquired, 1)
		w.freeze(was, w.opts.Lease+time.Second)
		is := w.own(next)
		a := old.Finish(t.Context(), []driver.Finish{success(&r)})[0]
		assert.True(t, !a.Held && !a.Written && a.Err == nil, "a mark from a stale epoch: %+v", a)
		assert.ErrorIs(t, context.Cause(was.Context()), ErrLost, "the stale owner's Context ended")
		assert.EqualValues(t, 1, was.Stats().Stale, "the mark was to be counted")
		w.wants("a claim at the stale owner", w.claim(old, request(2)), dedup.InFlight, 0)
		w.wants("the key at the new owner", w.claim(next, request(1)), dedup.Acquired, 2)
		w.wants("another key there", w.claim(next, request(2)), dedup.Acquired, 1)
		st := is.Stats()
		assert.EqualValues(t, 1, st.Saved, "only the key that nobody had begun is new")
		assert.Greater(t, st.Epoch, was.Stats().Epoch)
	})
}

// TestALapsedOwnerGoesOn: a lease that ran out without another owner costs an epoch. The owner
// keeps its filter and the keys that it has begun.
func TestALapsedOwnerGoesOn(t *testing.T) {
	story(t, func(w *world) {
		t := w.T
		s := w.process()
		o := w.own(s)
		r := request(1)
		w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
		before := o.Stats()
		w.freeze(o, w.opts.Lease+time.Second)
		w.wants("the next key", w.claim(s, request(2)), dedup.Acquired, 1)
		after := o.Stats()
		assert.Greater(t, after.Epoch, before.Epoch, "want a new epoch and two keys that were new")
		assert.EqualValues(t, 2, after.Saved)
		assert.NoError(t, o.Context().Err())
		a := w.finish(s, success(&r))
		assert.True(t, a.Held && a.Written, "a key that was begun in the epoch before: %+v", a)
		w.wants("it", w.claim(s, request(1)), dedup.Duplicate, 0)
	})
}

// TestTwoRaceForOnePartition: one gets it, and the error of the others says for how long.
func TestTwoRaceForOnePartition(t *testing.T) {
	story(t, func(w *world) {
		t := w.T
		stores := []*Store{w.process(), w.process(), w.process()}
		var got [3]*Ownership
		var errs [3]error
		var all sync.WaitGroup
		for i, s := range stores {
			all.Go(func() { got[i], errs[i] = s.Acquire(t.Context(), only) })
		}
		all.Wait()
		won := 0
		for i := range stores {
			var held *HeldError
			switch {
			case errs[i] == nil:
				won++
			case !errors.As(errs[i], &held) || held.Remaining <= 0 || held.Remaining > w.opts.Lease:
				t.Errorf("want a HeldError, got %v", errs[i])
			}
		}
		assert.Equal(t, 1, won)
	})
}

// TestAnOlderGenerationIsTakenOver at once, with the option and never without.
func TestAnOlderGenerationIsTakenOver(t *testing.T) {
	story(t, func(w *world) {
		t := w.T
		old := w.process()
		w.own(old)
		newer := only
		newer.Generation++
		var held *HeldError
		_, err := w.process().Acquire(t.Context(), newer)
		assert.ErrorAs(t, err, &held, "without the option")
		w.opts.TakeOverOlderGeneration = true
		_, err = w.process().Acquire(t.Context(), only)
		assert.ErrorAs(t, err, &held, "from the same generation")
		_, err = w.process().Acquire(t.Context(), newer)
		assert.NoError(t, err, "from an older generation")
		w.wants("at the old owner", w.claim(old, request(1)), dedup.InFlight, 0)
	})
}

// TestRequestsThatAreRefused: one window and one lease for all keys do not fit these requests.
func TestRequestsThatAreRefused(t *testing.T) {
	story(t, func(w *world) {
		t := w.T
		s := w.process()
		w.own(s)
		for field, bend := range map[string]func(r *driver.ClaimRequest, c *driver.Finish){
			"Lease": func(r *driver.ClaimRequest, _ *driver.Finish) {
				r.Lease = w.opts.Lease/3 + 1
			},
			"Hold": func(r *driver.ClaimRequest, _ *driver.Finish) { r.Hold++ },
			"Fingerprint": func(r *driver.ClaimRequest, c *driver.Finish) {
				r.Fingerprint[0], c.Fingerprint[0] = 1, 1
			},
			"Origin": func(r *driver.ClaimRequest, c *driver.Finish) {
				r.Origin.Partition, c.Origin.Partition = 6, 6
			},
			"Window": func(_ *driver.ClaimRequest, c *driver.Finish) { c.Window = time.Minute },
			"Result": func(_ *driver.ClaimRequest, c *driver.Finish) { c.Result = []byte("x") },
			"State": func(_ *driver.ClaimRequest, c *driver.Finish) {
				c.State = driver.StateFailed
			},
			"NotAttempted": func(_ *driver.ClaimRequest,
				c *driver.Finish) {
				c.NotAttempted = true
			},
			"With": func(_ *driver.ClaimRequest, c *driver.Finish) { c.With = 1 },
		} {
			r := request(len(field))
			c := success(&r)
			bend(&r, &c)
			var bad *dedup.InputError
			claimed := s.Claim(t.Context(), []driver.ClaimRequest{r})[0].Err
			ended := s.Finish(t.Context(), []driver.Finish{c})[0].Err
			err := errors.Join(claimed, ended)
			assert.True(t, errors.As(err, &bad) && bad.Field == field,
				"%s: Claim says %v, Finish %v", field, claimed, ended)
		}
	})
}

// TestInFlightIsBounded: a key above the bound is claimed at the inner store, and is not a suspect.
func TestInFlightIsBounded(t *testing.T) {
	story(t, func(w *world) {
		t := w.T
		w.opts.InFlight = 4
		s := w.process()
		o := w.own(s)
		var reqs []driver.ClaimRequest
		var ends []driver.Finish
		for n := range 10 {
			reqs = append(reqs, request(n))
			ends = append(ends, success(&reqs[n]))
		}
		for _, a := range s.Claim(t.Context(), reqs) {
			w.wants("a new key", a, dedup.Acquired, 1)
		}
		st := o.Stats()
		assert.Equal(t, 4, st.InFlight, "want 4 in flight of 10 that were new")
		assert.EqualValues(t, 4, st.Saved)
		assert.EqualValues(t, 10, st.New)
		for _, a := range s.Finish(t.Context(), ends) {
			assert.True(t, a.Held && a.Written, "an end: %+v", a)
		}
		assert.Equal(t, 0, o.Stats().InFlight, "all have ended")
		for n := range 10 {
			w.wants(fmt.Sprint("key ", n), w.claim(s, request(n)), dedup.Duplicate, 0)
		}
		assert.Zero(t, w.client.HLen(t.Context(), o.names.run).Val(), "begins are left on record")
	})
}

// TestGenerationsPass: marks stay duplicates from one generation to the next, for the window, and
// no longer than the window, the hold and two slices.
func TestGenerationsPass(t *testing.T) {
	story(t, func(w *world) {
		t := w.T
		s := w.process()
		o := w.own(s)
		slice := o.s.opts.slice()
		r := request(1)
		time.Sleep(slice - time.Duration(time.Now().UnixNano())%slice - time.Second)
		w.wants("a new key", w.claim(s, r), dedup.Acquired, 1)
		// the mark goes to another generation than the owner names first
		time.Sleep(2 * time.Second)
		a := w.finish(s, success(&r))
		assert.True(t, a.Held, "a mark at the edge: %+v", a)
		for range 60 {
			time.Sleep(time.Minute - time.Second)
			w.wants("within the window", w.claim(s, request(1)), dedup.Duplicate, 0)
		}
		for range 28 {
			time.Sleep(slice / 4)
			other := request(int(time.Now().Unix()))
			w.claim(s, other)
			w.finish(s, success(&other))
		}
		w.wants("long after the window", w.claim(s, request(1)), dedup.Acquired, 1)
		assert.GreaterOrEqual(t, o.Stats().Filter.Rotations, uint64(7), "generations were to pass")
	})
}

// TestTheEntryComesBeforeTheFilter: between the two, another claim of the same key can begin and
// end. Only one of the two claims gets the key.
func TestTheEntryComesBeforeTheFilter(t *testing.T) {
	story(t, func(w *world) {
		t := w.T
		s := w.process()
		w.own(s)
		first := true
		var second driver.Answer
		s.between = func() {
			if !first {
				return
			}
			first = false
			r := request(1)
			if second = w.claim(s, r); second.Outcome == dedup.Acquired {
				w.finish(s, success(&r))
			}
		}
		a := w.claim(s, request(1))
		assert.NotEqual(t, second.Outcome, a.Outcome, "both got the key, or none")
	})
}
