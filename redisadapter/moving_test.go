package redisadapter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

func moving(t testing.TB, lead, follow dedup.Store) dedup.Store {
	t.Helper()
	m, err := layered.Moving(lead, follow)
	must(t, err)
	return m
}

// TestConformanceOfMoving: the two stores of a move behave like one store.
func TestConformanceOfMoving(t *testing.T) {
	for _, pair := range movingLayouts {
		// Not side by side: a lease in the second store is shorter by the time that the first one
		// took, and next to other tests that is long.
		t.Run(pair[0].String()+" to "+pair[1].String(), func(t *testing.T) {
			mini, client := redistest.Freeze(t)
			old := harness(t, redistest.Backend{Client: client, Prefix: "old"}, pair[0])
			next := harness(t, redistest.Backend{Client: client, Prefix: "next"}, pair[1])
			deduptest.Run(t, byHand(mini, deduptest.Harness{
				DoneOnly:  old.DoneOnly || next.DoneOnly,
				WalkSteps: walkSteps,
				New: func(t testing.TB) dedup.Store {
					return moving(t, old.New(t), next.New(t))
				},
			}))
		})
	}
}

func TestMovingRefuses(t *testing.T) {
	b := redistest.Open(t, "miniredis")
	store := open(t, b)
	for field, pair := range map[string][2]dedup.Store{"Lead": {nil, store},
		"Follow": {store, open(t, b)}} {
		_, err := layered.Moving(pair[0], pair[1])
		wantInput(t, err, field)
	}
	_, err := layered.Moving(store, nil)
	wantInput(t, err, "Follow")
}

// relocation has the two stores of a move, and counts the effects of each message.
type relocation struct {
	old, next dedup.Store
	mu        sync.Mutex
	effects   map[string]int
}

// process returns a Deduper with the store that a process has in a step of the move.
func (r *relocation) process(t testing.TB, step int) *dedup.Deduper {
	t.Helper()
	store := []dedup.Store{1: r.old, 2: nil, 3: nil, 4: r.next}[step]
	switch step {
	case 2:
		store = moving(t, r.old, r.next)
	case 3:
		store = moving(t, r.next, r.old)
	}
	return newDeduper(t, store)
}

func newDeduper(t testing.TB, store dedup.Store) *dedup.Deduper {
	t.Helper()
	d, err := dedup.New(store, dedup.Config{Namespace: "moving", Window: time.Hour,
		LeaseTTL: 2 * time.Second, Hold: time.Minute})
	must(t, err)
	// close it even if its process died, because it continues to ask
	t.Cleanup(func() { must(t, d.Close(context.Background())) })
	return d
}

func (r *relocation) effect(key string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.effects[key]++
		return key, nil
	}
}

// deliver delivers each key to all processes, a few times and in random order. It returns how many
// keys had more than one effect.
func (r *relocation) deliver(t *testing.T, keys int, processes ...*dedup.Deduper) (doubles int) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range 4 * len(processes) {
		wg.Go(func() {
			d := processes[w%len(processes)]
			for _, n := range rand.Perm(keys) {
				key := fmt.Sprint("key-", n)
				for try := 0; ; try++ {
					res, err := dedup.DoResult(t.Context(), d, key, r.effect(key))
					if err == nil && res.Value == key {
						break
					}
					again := errors.Is(err, dedup.ErrInFlight) || dedup.OutcomeUnknown(err)
					if !assert.True(t, again, "%s: %+v, %v", key, res, err) {
						break
					}
					// Two processes that hold each other up must not do so again, however long a
					// call takes on a busy machine.
					<-time.After(rand.N(time.Millisecond << min(try, 8)))
				}
			}
		})
	}
	wg.Wait()
	for n := range keys {
		switch count := r.effects[fmt.Sprint("key-", n)]; {
		case count == 0:
			t.Errorf("key-%d was lost", n)
		case count > 1:
			doubles++
		}
	}
	return doubles
}

func newRelocation(old, next dedup.Store) *relocation {
	return &relocation{old: old, next: next, effects: make(map[string]int)}
}

// TestMovingUnderLoad mixes the processes of neighboring steps: no effect runs twice and no message
// is lost. Processes of steps that are not neighbors do not exclude each other.
func TestMovingUnderLoad(t *testing.T) {
	onServer := func(t *testing.T) (dedup.Store, dedup.Store) {
		b := redistest.Backend{Client: redistest.Open(t, "redis").Client,
			Prefix: servertest.Prefix(t)}
		old := open(t, b)
		b.Prefix += "2"
		return old, open(t, b)
	}
	faulty := func(*testing.T) (dedup.Store, dedup.Store) {
		return deduptest.NewFaulty(dedup.Memory(1e5), deduptest.Seeded(1, 0.03)),
			deduptest.NewFaulty(dedup.Memory(1e5), deduptest.Seeded(2, 0.03))
	}
	for name, stores := range map[string]func(*testing.T) (dedup.Store,
		dedup.Store){"redis": onServer, "faulty": faulty} {
		t.Run(name, func(t *testing.T) {
			for _, steps := range [][]int{{1, 2}, {2}, {2, 3}, {3}, {3, 4}, {1, 4}} {
				t.Run(fmt.Sprint(steps), func(t *testing.T) {
					r := newRelocation(stores(t))
					var processes []*dedup.Deduper
					for _, step := range steps {
						processes = append(processes, r.process(t, step), r.process(t, step))
					}
					doubles := r.deliver(t, 100, processes...)
					assert.Equal(t, steps[len(steps)-1]-steps[0] > 1, doubles > 0,
						"%d keys of 100 had their effect twice", doubles)
				})
			}
		})
	}
}

// doomed is a store of a process that dies at one of its calls, before the call is executed or
// after. The calls of both of its stores are counted together.
type doomed struct {
	dedup.Store
	crash *crash
	lead  bool
}

// crash is the call at which a process dies, and what the process has done before that.
type crash struct {
	mu       sync.Mutex
	calls    int
	diesAt   int
	executed bool // the call at which it dies is executed
	dead     bool
	recorded bool // the lead has recorded the end
}

var errDead = errors.New("the process is dead")

// allow counts a call, and reports whether it is executed and whether its answer arrives.
func (c *crash) allow() (execute, hear bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return false, false
	}
	if c.calls++; c.calls == c.diesAt {
		c.dead = true
		return c.executed, false
	}
	return true, true
}

func (c *crash) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

func deadly[T any](d *doomed, items []T, send func() []driver.Answer) []driver.Answer {
	execute, hear := d.crash.allow()
	var answers []driver.Answer
	if execute {
		answers = send()
	}
	if hear {
		return answers
	}
	answers = make([]driver.Answer, len(items))
	for i := range answers {
		answers[i].Err = errDead
	}
	return answers
}

func (d *doomed) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	return deadly(d, reqs, func() []driver.Answer { return d.Store.Claim(ctx, reqs) })
}

func (d *doomed) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	return deadly(d, renewals, func() []driver.Answer { return d.Store.Renew(ctx, renewals) })
}

func (d *doomed) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	return deadly(d, changes, func() []driver.Answer {
		answers := d.Store.Finish(ctx, changes)
		d.crash.mu.Lock()
		defer d.crash.mu.Unlock()
		if d.lead && answers[0].Written && changes[0].State == driver.StateSucceeded {
			d.crash.recorded = true
		}
		return answers
	})
}

// TestMovingCrashes kills a process of one step at each call of either store. Then a process of the
// same step, or of the one before or after, gets the message. A second effect happens only if the
// first one had no record in lead, never between the two records.
func TestMovingCrashes(t *testing.T) {
	halves := 0 // processes that died between their two records
	for _, c := range []struct{ dies, comes int }{{2, 1}, {2, 2}, {2, 3}, {3, 2}, {3, 3}, {3, 4}} {
		for _, fenced := range []bool{false, true} {
			for at := 1; at <= 8; at++ {
				for _, executed := range []bool{false, true} {
					name := fmt.Sprintf("%d then %d, fenced %t, call %d, executed %t", c.dies,
						c.comes, fenced, at, executed)
					t.Run(name, func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							if crashOnce(t, c.dies, c.comes, at, executed, fenced) {
								halves++
							}
						})
					})
				}
			}
		}
	}
	assert.GreaterOrEqual(t, halves, 12, "only %d processes died between their two records", halves)
}

// crashOnce reports whether the process has died between its two records.
func crashOnce(t *testing.T, dies, comes, at int, executed, fenced bool) (half bool) {
	healthy := newRelocation(dedup.Memory(100), dedup.Memory(100))
	c := &crash{diesAt: at, executed: executed}
	r := newRelocation(&doomed{healthy.old, c, dies == 2}, &doomed{healthy.next, c, dies == 3})
	first := r.process(t, dies)
	_, _ = dedup.Do(t.Context(), first, "m", func(ctx context.Context) (string, error) {
		if c.isDead() {
			return "", errDead
		}
		if a, ok := dedup.FromContext(ctx); ok && fenced {
			a.Fence()
		}
		return healthy.effect("m")(ctx)
	})
	ranFirst, recorded := healthy.effects["m"] == 1, c.recorded
	time.Sleep(3 * time.Second) // until its lease is over
	second := healthy.process(t, comes)
	_, err := dedup.Do(t.Context(), second, "m", healthy.effect("m"))
	require.NoError(t, err, "then")
	want := 1
	if ranFirst && !recorded {
		want = 2 // a crash after the effect and before its record, as with one store
	}
	n := healthy.effects["m"]
	assert.Equal(t, want, n,
		"%d effects, want %d (first had its effect: %t, on record: %t)", n, want, ranFirst, recorded)
	return c.dead && ranFirst && recorded && c.calls == at
}

// TestMovingForgetsEverywhere: an owner from before a Forget cannot write in either store, although
// the two stores gave it different fences.
func TestMovingForgetsEverywhere(t *testing.T) {
	mini, client := redistest.Freeze(t)
	old := open(t, redistest.Backend{Client: client, Prefix: "old"})
	next := open(t, redistest.Backend{Client: client, Prefix: "next"})
	for range 3 { // so that the fences of old are larger
		old.Claim(t.Context(), []driver.ClaimRequest{request(1)})
		old.Finish(t.Context(), []driver.Finish{change(1, driver.StateReleased)})
	}
	for name, m := range map[string]dedup.Store{"old leads": moving(t, old, next),
		"next leads": moving(t, next, old)} {
		a := m.Claim(t.Context(), []driver.ClaimRequest{request(1)})[0]
		require.Equal(t, dedup.Acquired, a.Outcome, "%s: %+v", name, a)
		mini.Advance(2 * time.Minute)
		must(t, m.Forget(t.Context(), []driver.ID{newID(1)}, time.Hour)[0])
		late := change(1, driver.StateSucceeded)
		late.EffectApplied, late.Fence = true, a.Record.Fence
		a = m.Finish(t.Context(), []driver.Finish{late})[0]
		assert.False(t, a.Written, "%s: %+v", name, a)
		assert.False(t, a.Held, "%s: %+v", name, a)
		for where, store := range map[string]dedup.Store{"old": old, "next": next} {
			a := store.Lookup(t.Context(), []driver.ID{newID(1)})[0]
			assert.Equal(t, driver.StateAbsent, a.Record.State,
				"%s: %s holds %+v", name, where, a.Record)
		}
	}
}

// TestMovingCarriesEndsOver: if only old knows an end, next knows it after the first claim of its
// key.
func TestMovingCarriesEndsOver(t *testing.T) {
	_, client := redistest.Freeze(t)
	old := open(t, redistest.Backend{Client: client, Prefix: "old"})
	next := open(t, redistest.Backend{Client: client, Prefix: "next"})
	for n, state := range []driver.State{driver.StateSucceeded, driver.StateFailed} {
		old.Claim(t.Context(), []driver.ClaimRequest{request(n)})
		done := change(n, state)
		done.Result, done.Window = []byte("r"), 40*time.Minute
		old.Finish(t.Context(), []driver.Finish{done})
		again := request(n)
		again.Token = driver.Token{99}
		for _, store := range []dedup.Store{moving(t, next, old), next} {
			a := store.Claim(t.Context(), []driver.ClaimRequest{again})[0]
			assert.Equal(t, dedup.Duplicate, a.Outcome, "%v: %+v", state, a)
			assert.Equal(t, state, a.Record.State, "%v: %+v", state, a)
			assert.Equal(t, "r", string(a.Record.Result), "%v: %+v", state, a)
			assert.LessOrEqual(t, a.Record.Remaining, 40*time.Minute, "%v: %+v", state, a)
			assert.GreaterOrEqual(t, a.Record.Remaining, 39*time.Minute, "%v: %+v", state, a)
		}
	}
}

// TestMovingGivesBack: if only follow knows that a key is done, no claim stays in lead. That is so
// even if lead cannot copy the end, because it has one window for all keys.
func TestMovingGivesBack(t *testing.T) {
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			b := redistest.Open(t, "miniredis")
			old := openWith(t, b, layoutOptions("old", redisadapter.Full))
			next := openWith(t, b, layoutOptions("next", layout))
			m := moving(t, next, old)
			wantOutcome(t, old, 1, dedup.Acquired)
			finishOne(t, old, 1)
			a := m.Claim(t.Context(), []driver.ClaimRequest{request(1)})[0]
			assert.Equal(t, dedup.Duplicate, a.Outcome, "%+v", a)
			want := driver.StateSucceeded
			if layout == redisadapter.Compact {
				want = driver.StateReleased
			}
			rec := next.Lookup(t.Context(), []driver.ID{newID(1)})[0].Record
			assert.Equal(t, want, rec.State, "in lead: %+v", rec)
			assert.False(t, want == driver.StateReleased && rec.Attempt != 0, "in lead: %+v", rec)
		})
	}
}

// TestMovingHasNoTransaction: Atomic cannot write to both stores.
func TestMovingHasNoTransaction(t *testing.T) {
	b := redistest.Open(t, "miniredis")
	s := newTill(t, b, nil)
	b.Prefix += "2"
	d := newDeduper(t, moving(t, s.store, open(t, b)))
	wantInput(t, s.store.Atomic(t.Context(), d, dedup.Completion{Claim: s.claim(d, "a")},
		s.incr("a")), "Completion.With")
	s.wantCount("a", 0)
}
