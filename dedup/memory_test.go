package dedup_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	deduptest.Run(t, deduptest.Harness{
		New:   func(testing.TB) dedup.Store { return dedup.Memory(1 << 16) },
		Lease: 20 * time.Millisecond,
	})
}

// memID and memToken are the nth key and the nth owner.
func memID(n int) (id driver.ID) {
	binary.BigEndian.PutUint64(id[:], uint64(n)+1)
	return id
}

func memToken(n int) (token driver.Token) {
	binary.BigEndian.PutUint64(token[:], uint64(n)+1)
	return token
}

func memClaim(t *testing.T, s dedup.Store, n int, lease, hold time.Duration) driver.Answer {
	t.Helper()
	return s.Claim(t.Context(),
		[]driver.ClaimRequest{{ID: memID(n), Token: memToken(n), Lease: lease, Hold: hold}})[0]
}

func memFinish(t *testing.T, s dedup.Store, n int, state driver.State,
	keep time.Duration) driver.Answer {
	t.Helper()
	return s.Finish(t.Context(),
		[]driver.Finish{{ID: memID(n), Token: memToken(n), State: state, Window: keep,
			Hold: keep}})[0]
}

// A full store refuses what is new, keeps what it has, and still serves it.
func TestMemoryFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dedup.Memory(3)
		for n := range 3 {
			a := memClaim(t, s, n, time.Minute, time.Hour)
			require.Equal(t, dedup.Acquired, a.Outcome, "claim %d", n)
		}
		full := func(when string) {
			t.Helper()
			a := memClaim(t, s, 9, time.Minute, time.Hour)
			assert.Equal(t, dedup.Unknown, a.Outcome, "a new claim %s", when)
			assert.ErrorIs(t, a.Err, driver.ErrStoreFull, "a new claim %s", when)
			landed := driver.Finish{ID: memID(9), Token: memToken(9), State: driver.StateSucceeded,
				Window: time.Hour, EffectApplied: true}
			a = s.Finish(t.Context(), []driver.Finish{landed})[0]
			assert.False(t, a.Written, "a landed effect of a new key %s", when)
			assert.ErrorIs(t, a.Err, driver.ErrStoreFull, "a landed effect of a new key %s", when)
		}
		full("with three claims")

		renewal := driver.Renewal{ID: memID(0), Token: memToken(0), Lease: time.Hour,
			Hold: time.Hour}
		a := s.Renew(t.Context(), []driver.Renewal{renewal})[0]
		assert.True(t, a.Held, "renewal: %+v", a)
		a = memFinish(t, s, 1, driver.StateSucceeded, time.Hour)
		assert.True(t, a.Held && a.Written, "completion: %+v", a)
		a = memFinish(t, s, 2, driver.StateReleased, time.Hour)
		assert.True(t, a.Held && a.Written, "release: %+v", a)
		full("with a claim, a record and a released key")
		a = memClaim(t, s, 2, time.Minute, time.Hour)
		assert.Equal(t, dedup.Acquired, a.Outcome, "claim of a released key")
		assert.Equal(t, 2, a.Record.Attempt)
		time.Sleep(2 * time.Minute)
		taken := driver.ClaimRequest{ID: memID(2), Token: memToken(7), Lease: time.Minute,
			Hold: time.Hour}
		a = s.Claim(t.Context(), []driver.ClaimRequest{taken})[0]
		assert.Equal(t, dedup.Acquired, a.Outcome)
		assert.Equal(t, 3, a.Record.Attempt)
		assert.NoError(t, s.Forget(t.Context(), []driver.ID{memID(1)}, time.Hour)[0])
		full("with a forgotten key that is held")
		a = memClaim(t, s, 1, time.Minute, time.Hour)
		assert.Equal(t, dedup.Acquired, a.Outcome, "claim of the forgotten key in its own place")
		assert.Equal(t, 1, a.Record.Attempt)
	})
}

// Every expired record gives its place back, however it came to expire, and no other record does. A
// record that was made to live longer than its first lease stays.
func TestMemoryPlacesComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 500
		s := dedup.Memory(places)
		alive := map[int]time.Time{}
		for n := range 40 * places {
			now := time.Now()
			live := 0
			for key, until := range alive {
				if !until.After(now) {
					delete(alive, key)
					continue
				}
				live++
			}
			a := memClaim(t, s, n, time.Second, time.Second)
			got, want := a.Outcome == dedup.Acquired, live < places
			require.Equal(t, want, got, "claim %d beside %d live keys of %d: %+v", n, live, places,
				a)
			if a.Outcome == dedup.Acquired {
				keep := 2 * time.Second
				switch n % 4 {
				case 0: // shorter than the claim
					keep = 100 * time.Millisecond
					memFinish(t, s, n, driver.StateReleased, keep)
				case 1: // longer
					keep = 9 * time.Second
					memFinish(t, s, n, driver.StateSucceeded, keep)
				case 2:
					keep = time.Second
					memFinish(t, s, n, driver.StateFailed, keep)
				}
				alive[n] = now.Add(keep)
			}
			time.Sleep(time.Duration(n%7) * time.Millisecond)
		}
	})
}

func TestMemoryRefusesBadInput(t *testing.T) {
	claim := driver.ClaimRequest{ID: memID(1), Token: memToken(1), Lease: time.Minute,
		Hold: time.Minute}
	change := driver.Finish{ID: memID(1), Token: memToken(1), Lease: time.Minute, Hold: time.Minute,
		Window: time.Minute, State: driver.StateSucceeded}
	ask := func(bend func(*driver.ClaimRequest)) func(dedup.Store) error {
		return func(s dedup.Store) error {
			req := claim
			bend(&req)
			return s.Claim(t.Context(), []driver.ClaimRequest{req})[0].Err
		}
	}
	end := func(bend func(*driver.Finish)) func(dedup.Store) error {
		return func(s dedup.Store) error {
			c := change
			bend(&c)
			return s.Finish(t.Context(), []driver.Finish{c})[0].Err
		}
	}
	for name, row := range map[string]struct {
		field    string
		capacity int
		call     func(dedup.Store) error
	}{
		"no capacity":       {"capacity", 0, ask(func(*driver.ClaimRequest) {})},
		"negative capacity": {"capacity", -1, ask(func(*driver.ClaimRequest) {})},
		"landed, no capacity": {"capacity", 0,
			end(func(c *driver.Finish) { c.EffectApplied = true })},
		"no lease":       {"Lease", 9, ask(func(r *driver.ClaimRequest) { r.Lease = 0 })},
		"negative lease": {"Lease", 9, ask(func(r *driver.ClaimRequest) { r.Lease = -1 })},
		"negative hold":  {"Hold", 9, ask(func(r *driver.ClaimRequest) { r.Hold = -1 })},
		"no window":      {"Window", 9, end(func(c *driver.Finish) { c.Window = 0 })},
		"negative window": {"Window", 9, end(func(c *driver.Finish) {
			c.State, c.Window = driver.StateFailed, -1
		})},
		"release, bad hold": {"Hold", 9, end(func(c *driver.Finish) {
			c.State, c.Hold = driver.StateReleased, -1
		})},
		"in progress is no end": {"State", 9, end(func(c *driver.Finish) {
			c.State = driver.StateInProgress
		})},
		"a failure has no land": {"EffectApplied", 9, end(func(c *driver.Finish) {
			c.State, c.EffectApplied = driver.StateFailed, true
		})},
		"renewal, no lease": {"Lease", 9, func(s dedup.Store) error {
			return s.Renew(t.Context(), []driver.Renewal{{ID: memID(1), Token: memToken(1)}})[0].Err
		}},
		"forget, bad hold": {"hold", 9, func(s dedup.Store) error {
			return s.Forget(t.Context(), []driver.ID{memID(1)}, -1)[0]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := dedup.Memory(row.capacity)
			wantInput(t, row.call(s), row.field)
			rec := s.Lookup(t.Context(), []driver.ID{memID(1)})[0].Record
			assert.Equal(t, driver.StateAbsent, rec.State, "what a refused call left")
		})
	}
}

// Durations up to the largest must not overflow into the past.
func TestMemoryForever(t *testing.T) {
	s := dedup.Memory(10)
	a := memClaim(t, s, 1, math.MaxInt64, math.MaxInt64)
	require.Equal(t, dedup.Acquired, a.Outcome)
	require.Positive(t, a.Record.Remaining)
	a = memFinish(t, s, 1, driver.StateSucceeded, math.MaxInt64)
	require.True(t, a.Written, "end: %+v", a)
	require.Positive(t, a.Record.Remaining)
	a = memClaim(t, s, 1, time.Second, time.Second)
	require.Equal(t, dedup.Duplicate, a.Outcome, "second claim")
}

// An owner from before a Forget writes nothing, even if the key was claimed again before it
// completes.
func TestMemoryForgottenOwnerStaysOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dedup.Memory(10)
		old := memClaim(t, s, 1, time.Second, time.Hour)
		time.Sleep(2 * time.Second)
		require.NoError(t, s.Forget(t.Context(), []driver.ID{memID(1)}, time.Hour)[0])
		next := driver.ClaimRequest{ID: memID(1), Token: memToken(2), Lease: time.Minute,
			Hold: time.Hour}
		a := s.Claim(t.Context(), []driver.ClaimRequest{next})[0]
		require.Equal(t, dedup.Acquired, a.Outcome, "claim after Forget")
		require.Greater(t, a.Record.Fence, old.Record.Fence)
		late := driver.Finish{
			ID: memID(1), Token: memToken(1), Fence: old.Record.Fence, Attempt: 1,
			State: driver.StateSucceeded, Window: time.Hour, EffectApplied: true,
			Result: []byte("old"),
		}
		a = s.Finish(t.Context(), []driver.Finish{late})[0]
		assert.False(t, a.Written, "the forgotten owner wrote: %+v", a)
		assert.Equal(t, driver.StateInProgress, a.Record.State)
	})
}

// A late owner whose effect landed gets the same answer when it asks again: the effect is on
// record, but the lease was lost.
func TestMemoryEffectAppliedAgainIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dedup.Memory(10)
		old := memClaim(t, s, 1, time.Second, time.Hour)
		time.Sleep(2 * time.Second)
		next := driver.ClaimRequest{ID: memID(1), Token: memToken(2), Lease: time.Minute,
			Hold: time.Hour}
		s.Claim(t.Context(), []driver.ClaimRequest{next})
		late := driver.Finish{
			ID: memID(1), Token: memToken(1), Fence: old.Record.Fence,
			State: driver.StateSucceeded, Window: time.Hour, EffectApplied: true,
		}
		for range 2 {
			a := s.Finish(t.Context(), []driver.Finish{late})[0]
			assert.True(t, a.Written && !a.Held, "a landed effect: %+v", a)
		}
	})
}

// A landed effect may carry a fence from before a restart. The record shows it, and
// the next claim of the key outgrows it.
func TestMemoryEffectAppliedFenceCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dedup.Memory(10)
		const fence = 1 << 60
		late := driver.Finish{
			ID: memID(1), Token: memToken(1), Fence: fence, Attempt: 4,
			State: driver.StateSucceeded, Window: time.Second, EffectApplied: true,
		}
		a := s.Finish(t.Context(), []driver.Finish{late})[0]
		assert.True(t, a.Written, "a landed effect: %+v", a)
		assert.EqualValues(t, fence, a.Record.Fence)
		assert.Equal(t, 4, a.Record.Attempt)
		time.Sleep(time.Second)
		assert.Greater(t, memClaim(t, s, 1, time.Second, time.Second).Record.Fence, uint64(fence))
	})
}

func TestMemoryKeepsTheCause(t *testing.T) {
	gone := errors.New("the broker is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	a := dedup.Memory(10).Lookup(ctx, []driver.ID{memID(1)})[0]
	assert.ErrorIs(t, a.Err, context.Canceled, "want both the end and its cause")
	assert.ErrorIs(t, a.Err, gone)
}

// A process that starts again must hand out larger fences than the one before it.
func TestMemoryFencesOutliveTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := dedup.Memory(10)
		last := uint64(0)
		for range 100 {
			last = memClaim(t, before, 1, time.Second, time.Second).Record.Fence
			memFinish(t, before, 1, driver.StateReleased, time.Second)
		}
		time.Sleep(time.Millisecond)
		a := memClaim(t, dedup.Memory(10), 1, time.Second, time.Second)
		assert.Greater(t, a.Record.Fence, last)
	})
}

func TestMemoryForgetHoldsTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dedup.Memory(10)
		old := memClaim(t, s, 1, time.Second, time.Hour)
		time.Sleep(2 * time.Second)
		for _, hold := range []time.Duration{time.Hour, time.Second} {
			require.NoError(t, s.Forget(t.Context(), []driver.ID{memID(1)}, hold)[0])
		}
		time.Sleep(time.Minute)
		late := driver.Finish{
			ID: memID(1), Token: memToken(1), Fence: old.Record.Fence,
			State: driver.StateSucceeded, Window: time.Hour, EffectApplied: true,
		}
		a := s.Finish(t.Context(), []driver.Finish{late})[0]
		assert.False(t, a.Written, "a second, shorter Forget let the old owner in: %+v", a)
	})
}

// BenchmarkMemory claims and completes keys that are forgotten soon after, so that
// some ten thousand are live at a time.
func BenchmarkMemory(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run(map[int]string{1: "single", 100: "batch=100"}[size], func(b *testing.B) {
			s := dedup.Memory(math.MaxInt)
			reqs, ends := make([]driver.ClaimRequest, size), make([]driver.Finish, size)
			result := bytes.Repeat([]byte{1}, 64)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				for i := range size {
					n++
					reqs[i] = driver.ClaimRequest{ID: memID(n), Token: memToken(n),
						Lease: time.Second}
					ends[i] = driver.Finish{ID: memID(n), Token: memToken(n),
						State: driver.StateSucceeded, Window: 50 * time.Millisecond, Result: result}
				}
				s.Claim(b.Context(), reqs)
				s.Finish(b.Context(), ends)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
