package owned

import (
	"context"
	"errors"
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
)

// slowLoad holds back the head that a loader has read.
type slowLoad struct {
	armed bool
	there chan struct{}
	goOn  chan struct{}
	commands
}

func (s *slowLoad) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *slowLoad) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if s.armed && len(cmds) == 1 && cmds[0].Name() == "hgetall" {
			s.armed = false
			close(s.there)
			<-s.goOn
		}
		return err
	}
}

// TestAmnesiaUnderWork: an owner that works while it loads adds members, in sets of its own. They
// must not make up for the same number of lost members.
func TestAmnesiaUnderWork(t *testing.T) {
	story(t, func(w *world) {
		s := w.process()
		o := w.own(s)
		for n := range 3 {
			r := request(n)
			w.claim(s, r)
			w.finish(s, success(&r))
		}
		must(w, o.Release(w.Context()))
		must(w, w.client.Del(w.Context(), o.names.fresh(o.genNow(), 1)).Err())
		slow := &slowLoad{armed: true, there: make(chan struct{}), goOn: make(chan struct{})}
		w.client.AddHook(slow)
		next := w.process()
		is, err := next.Acquire(w.Context(), only)
		must(w, err)
		<-slow.there
		for n := range 5 {
			w.claim(next, request(10+n))
		}
		close(slow.goOn)
		synctest.Wait()
		cause := context.Cause(is.Context())
		assert.ErrorIs(w, cause, ErrAmnesia, "three marks are gone, and the partition ended")
	})
}

// between calls before and after around the next reading of a head. If afterTx is not nil, it is
// called after the first transaction that comes later.
type between struct {
	armed, passed atomic.Bool
	before, after func()
	afterTx       func()
	commands
}

func (h *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.passed.Load() && h.afterTx != nil && cmds[0].Name() == "multi" {
			err, do := next(ctx, cmds), h.afterTx
			h.afterTx = nil
			do()
			return err
		}
		if len(cmds) != 1 || cmds[0].Name() != "hgetall" || !h.armed.CompareAndSwap(true, false) {
			return next(ctx, cmds)
		}
		h.before()
		err := next(ctx, cmds)
		h.after()
		h.passed.Store(true)
		return err
	}
}

// TestAmnesiaBesideAForget: keys that were forgotten after the partition was acquired do not count
// as amnesia, and do not hide it: marks that the owner adds do not make up for lost ones.
func TestAmnesiaBesideAForget(t *testing.T) {
	for name, gone := range map[string]bool{"all are there": false, "marks are gone": true} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				s := w.process()
				o := w.own(s)
				for n := range 4 {
					r := request(n)
					w.claim(s, r)
					w.finish(s, success(&r))
				}
				must(w, o.Release(w.Context()))
				fresh := o.names.fresh(o.genNow(), 1)
				if gone {
					must(w, w.client.SPopN(w.Context(), fresh, 3).Err())
				}
				next, other := w.process(), w.process()
				h := &between{}
				h.before = func() {
					left := w.client.SCard(w.Context(), fresh).Val()
					must(w, errors.Join(other.Forget(w.Context(), []driver.ID{request(3).ID},
						0)...))
					now := w.client.SCard(w.Context(), fresh).Val()
					assert.False(w, !gone && now != left-1, "of %d marks %d are left", left, now)
					w.claim(next, request(10))
				}
				h.after = func() {
					for n := range 5 {
						w.claim(next, request(20+n))
					}
				}
				// head is read with the owner's sets, and what it adds then is not counted there
				h.afterTx = func() {
					for n := range 5 {
						w.claim(next, request(30+n))
					}
				}
				w.client.AddHook(h)
				h.armed.Store(true)
				_, err := next.Acquire(w.Context(), only)
				must(w, err)
				synctest.Wait()
				assert.Nil(w, h.afterTx,
					"head was not read again: the test does not step in between")
				is := next.held[only.place()]
				assert.Equal(w, gone, errors.Is(context.Cause(is.Context()), ErrAmnesia))
				assert.NotEqual(w, gone, is.loaded.Load())
			})
		})
	}
}

// TestAPauseInALoad: the process is stopped while it loads, and the sets of a generation that it
// was about to count expire meanwhile. That is not a loss of marks.
func TestAPauseInALoad(t *testing.T) {
	story(t, func(w *world) {
		s := w.process()
		o := w.own(s)
		r := request(1)
		w.claim(s, r)
		w.finish(s, success(&r))
		gen, slice, keep := o.genNow(), o.s.opts.slice(), w.opts.Window+w.opts.Hold
		fresh := o.names.fresh(gen, 1)
		must(w, o.Release(w.Context()))
		over := time.UnixMilli((time.Duration(gen+2)*slice + keep).Milliseconds())
		pass(time.Until(over) - time.Second)
		next := w.process()
		h := &between{before: func() {}}
		h.after = func() {
			is := next.held[only.place()]
			w.freeze(is, slice+2*time.Second)
			assert.Zero(w, w.client.Exists(w.Context(), fresh).Val(),
				"the set is not over: the test does not pause where it should")
		}
		w.client.AddHook(h)
		h.armed.Store(true)
		is, err := next.Acquire(w.Context(), only)
		must(w, err)
		synctest.Wait()
		require.False(w, h.armed.Load(), "nothing was loaded")
		pass(slice + 4*time.Second)
		synctest.Wait()
		cause := context.Cause(is.Context())
		assert.True(w, cause == nil && is.loaded.Load(),
			"loaded: %t, and the partition ended with %v", is.loaded.Load(), cause)
		w.wants("a new key", w.claim(next, request(2)), dedup.Acquired, 1)
	})
}

// TestAPromotedServerIsBehind: its clock is, so that it is still in the generation before. Nobody
// has written to the next generation, so marks go to this one, and do not wait for the clock.
func TestAPromotedServerIsBehind(t *testing.T) {
	m, client := redistest.Mini(t)
	slice := plainStore(t, client, setOptions("promoted")).opts.slice()
	at := time.UnixMilli((slice * 20000).Milliseconds())
	m.SetTime(at.Add(time.Second))
	o := takeLoaded(t, plainStore(t, client, setOptions("promoted")), somePartition)
	m.SetTime(at.Add(-time.Second))
	o.mark(t, idsOf(t, "k", 1))
	g := o.state(t)
	assert.EqualValues(t, 19999, g.Gen, "its head")
	assert.EqualValues(t, 1, g.Gens[19999].Fresh)
	letGo(t, o)
}
