package bloom

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func wantCheck(t *testing.T, when string, f *Filter, n uint64, want Answer, why Reason) {
	t.Helper()
	answer, reason := f.Check(id(n))
	assert.Equal(t, want, answer, when)
	assert.Equal(t, why, reason, when)
}

// This is the most important rule: the filter proves that an id is new only while a feed covers the
// whole window up to now.
func TestNewOnlyUnderCoverage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &hand{}
		f := mustNew(t, small(clock))
		wantCheck(t, "no feed", f, 1, Unknown, NotCovered)
		feed := f.Begin(Source{Name: "s"})
		wantCheck(t, "begun", f, 1, Unknown, Loading)
		f.Add(id(2))
		wantCheck(t, "begun, and added", f, 2, Unknown, Loading)
		for gen := int64(-5); gen < 0; gen++ {
			require.NoError(t, feed.Covered(gen, 0))
		}
		wantCheck(t, "covered but one, not open", f, 1, Unknown, Loading)
		require.NoError(t, feed.Open(time.Now().Add(time.Minute)))
		wantCheck(t, "open, the newest not covered", f, 1, Unknown, NotCovered)
		require.NoError(t, feed.Covered(0, 0))
		wantCheck(t, "open", f, 1, ProvenNew, None)
		wantCheck(t, "added", f, 2, Maybe, None)
		clock.move(10 * time.Second)
		wantCheck(t, "a generation that began while open", f, 1, ProvenNew, None)
		time.Sleep(time.Minute)
		wantCheck(t, "over", f, 1, Unknown, Expired)
		wantCheck(t, "over, and added", f, 2, Unknown, Expired)
		require.NoError(t, feed.Open(time.Now().Add(time.Minute)))
		wantCheck(t, "renewed", f, 1, ProvenNew, None)
		feed.Lost(None)
		wantCheck(t, "lost", f, 1, Unknown, Lost)
		for _, err := range []error{feed.Open(time.Now().Add(time.Minute)), feed.Covered(1, 0),
			feed.Through(time.Now())} {
			assert.ErrorIs(t, err, ErrDead, "of a lost feed")
		}
		require.NoError(t, feed.Add(1, id(3)))
		wantCheck(t, "after all that", f, 3, Unknown, Lost)
	})
}

func TestOldFeedIsDead(t *testing.T) {
	f := mustNew(t, small(&hand{}))
	old := covering(t, f)
	feed := f.Begin(Source{Name: "s", Epoch: 2})
	wantCheck(t, "begun anew", f, 1, Unknown, Loading)
	for _, err := range []error{old.Add(0, id(1)), old.Covered(0, 1),
		old.Open(time.Now().Add(time.Hour)), old.Through(time.Now())} {
		assert.ErrorIs(t, err, ErrDead, "of the old feed")
	}
	coverAll(t, f, feed)
	require.NoError(t, feed.Open(time.Now().Add(time.Hour)))
	old.Lost(Shared)
	wantCheck(t, "the old one lost it", f, 1, ProvenNew, None)
	feed.Lost(Shared)
	wantCheck(t, "shared", f, 1, Unknown, Shared)
}

func TestFeedNamesTheGeneration(t *testing.T) {
	f := mustNew(t, small(&hand{}))
	feed := covering(t, f)
	require.NoError(t, feed.Add(-2, id(1)))
	require.NoError(t, feed.Add(3, id(2))) // the store is ahead of the clock
	oldest, in, answer, reason := f.Where(id(1))
	assert.EqualValues(t, -2, oldest)
	assert.EqualValues(t, 1, in)
	assert.Equal(t, Maybe, answer)
	assert.Equal(t, None, reason)
	oldest, in, _, _ = f.Where(id(2))
	assert.EqualValues(t, -2, oldest)
	assert.EqualValues(t, 1<<5, in)
	_, in, answer, _ = f.Where(id(3))
	assert.Zero(t, in)
	assert.Equal(t, ProvenNew, answer)
	require.NoError(t, feed.Add(-3, id(4)))
	wantCheck(t, "older than the window", f, 4, ProvenNew, None)
	assert.Error(t, feed.Add(1<<62, id(5)), "a generation that has no time")
	require.NoError(t, feed.Add(9, id(6))) // everything rotates out
	wantCheck(t, "forgotten", f, 2, ProvenNew, None)
	wantCheck(t, "not forgotten", f, 6, Maybe, None)
}

// A generation may begin before the feed is open. Then it may not have been fed from its start.
func TestRotationWhileLoading(t *testing.T) {
	clock := &hand{}
	f := mustNew(t, small(clock))
	feed := f.Begin(Source{})
	coverAll(t, f, feed)
	clock.move(10 * time.Second)
	f.Add(id(1))
	require.NoError(t, feed.Open(time.Now().Add(time.Hour)))
	wantCheck(t, "began while loading", f, 2, Unknown, NotCovered)
	require.NoError(t, feed.Covered(1, 7))
	wantCheck(t, "covered", f, 2, ProvenNew, None)
}

func TestAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mustNew(t, Options{Window: time.Hour, Rate: 1})
		want := func(when string, n uint64, before time.Duration, want bool, why string) {
			t.Helper()
			got, reason := f.Absent(id(n), before)
			assert.Equal(t, want, got, when)
			assert.Equal(t, why, reason, when)
		}
		want("no feed", 1, time.Minute, false, "not_covered")
		feed := f.Begin(Source{})
		coverAll(t, f, feed)
		want("loading", 1, time.Minute, false, "loading")
		require.NoError(t, feed.Through(time.Now()))
		f.Add(id(2))
		want("through", 1, time.Minute, true, "")
		want("added", 2, time.Minute, false, "maybe")
		wantCheck(t, "Check needs Open", f, 1, Unknown, Expired)
		time.Sleep(time.Minute)
		want("just", 1, time.Minute, true, "")
		time.Sleep(time.Nanosecond)
		want("behind", 1, time.Minute, false, "expired")
		require.NoError(t, feed.Through(time.Now().Add(-time.Second)))
		require.NoError(t, feed.Through(time.Now().Add(-time.Hour)))
		want("followed", 1, time.Minute, true, "")
		require.NoError(t, feed.Open(time.Now().Add(time.Second)))
		want("open", 1, 0, true, "")
	})
}

// While a machine is suspended its monotonic clock is stopped, and its wall clock continues.
func TestSuspended(t *testing.T) {
	f := mustNew(t, Options{Window: time.Hour, Rate: 1})
	feed := covering(t, f)
	now := f.instant(time.Now())
	until := instant{mono: now.mono + time.Minute, wall: now.wall + int64(time.Minute)}
	for name, c := range map[string]struct {
		at   instant
		open bool
	}{
		"now":           {now, true},
		"suspended":     {instant{now.mono, now.wall + int64(time.Hour)}, false},
		"wall set back": {instant{now.mono + time.Hour, now.wall - int64(time.Hour)}, false},
	} {
		assert.Equal(t, c.open, c.at.before(until), "%s: open", name)
		assert.Equal(t, c.open, c.at.since(now) <= time.Minute, name)
	}
	require.NoError(t, feed.Open(time.Now().Round(0).Add(time.Minute)))
	wantCheck(t, "a time without a monotonic part", f, 1, ProvenNew, None)
}

func TestEvents(t *testing.T) {
	clock := &hand{}
	o := small(clock)
	var kinds []string
	var f *Filter
	o.OnEvent = func(e Event) {
		kinds = append(kinds, e.Kind.String())
		f.Check(id(1)) // no lock is held
	}
	f = mustNew(t, o)
	states := []string{}
	f.OnState(func(_, _, _ float64, reason string) { states = append(states, reason) })
	feed := covering(t, f)
	clock.move(10 * time.Second)
	f.Check(id(1))
	feed.Lost(Shared)
	f.OnState(nil)
	f.Begin(Source{})
	got, want := join(kinds), "lost covered rotated lost lost"
	assert.Equal(t, want, got)
	got, want = join(states), "loading   shared"
	assert.Equal(t, want, got)
}

func join(s []string) (all string) {
	for i, v := range s {
		if i > 0 {
			all += " "
		}
		all += v
	}
	return all
}
