package bloom

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func wantCheck(t *testing.T, when string, f *Filter, n uint64, want Answer, why Reason) {
	t.Helper()
	if answer, reason := f.Check(id(n)); answer != want || reason != why {
		t.Errorf("%s: %v %v, want %v %v", when, answer, reason, want, why)
	}
}

// The one thing that matters: without a feed that vouches for all of the window, now, nothing is new.
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
			must(t, feed.Covered(gen, 0))
		}
		wantCheck(t, "covered but one, not open", f, 1, Unknown, Loading)
		must(t, feed.Open(time.Now().Add(time.Minute)))
		wantCheck(t, "open, the newest not covered", f, 1, Unknown, NotCovered)
		must(t, feed.Covered(0, 0))
		wantCheck(t, "open", f, 1, ProvenNew, None)
		wantCheck(t, "added", f, 2, Maybe, None)
		clock.move(10 * time.Second)
		wantCheck(t, "a generation that began while open", f, 1, ProvenNew, None)
		time.Sleep(time.Minute)
		wantCheck(t, "over", f, 1, Unknown, Expired)
		wantCheck(t, "over, and added", f, 2, Unknown, Expired)
		must(t, feed.Open(time.Now().Add(time.Minute)))
		wantCheck(t, "renewed", f, 1, ProvenNew, None)
		feed.Lost(None)
		wantCheck(t, "lost", f, 1, Unknown, Lost)
		for _, err := range []error{feed.Open(time.Now().Add(time.Minute)), feed.Covered(1, 0), feed.Through(time.Now())} {
			if !errors.Is(err, ErrDead) {
				t.Errorf("of a lost feed: %v", err)
			}
		}
		must(t, feed.Add(1, id(3)))
		wantCheck(t, "after all that", f, 3, Unknown, Lost)
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOldFeedIsDead(t *testing.T) {
	f := mustNew(t, small(&hand{}))
	old := covering(t, f)
	feed := f.Begin(Source{Name: "s", Epoch: 2})
	wantCheck(t, "begun anew", f, 1, Unknown, Loading)
	for _, err := range []error{old.Add(0, id(1)), old.Covered(0, 1), old.Open(time.Now().Add(time.Hour)), old.Through(time.Now())} {
		if !errors.Is(err, ErrDead) {
			t.Errorf("of the old feed: %v", err)
		}
	}
	coverAll(t, f, feed)
	must(t, feed.Open(time.Now().Add(time.Hour)))
	old.Lost(Shared)
	wantCheck(t, "the old one lost it", f, 1, ProvenNew, None)
	feed.Lost(Shared)
	wantCheck(t, "shared", f, 1, Unknown, Shared)
}

func TestFeedNamesTheGeneration(t *testing.T) {
	f := mustNew(t, small(&hand{}))
	feed := covering(t, f)
	must(t, feed.Add(-2, id(1)))
	must(t, feed.Add(3, id(2))) // the store is ahead of the clock
	oldest, in, answer, reason := f.Where(id(1))
	if oldest != -2 || in != 1 || answer != Maybe || reason != None {
		t.Errorf("%d %b %v %v", oldest, in, answer, reason)
	}
	if oldest, in, _, _ := f.Where(id(2)); oldest != -2 || in != 1<<5 {
		t.Errorf("%d %b", oldest, in)
	}
	if _, in, answer, _ := f.Where(id(3)); in != 0 || answer != ProvenNew {
		t.Errorf("%b %v", in, answer)
	}
	must(t, feed.Add(-3, id(4)))
	wantCheck(t, "older than the window", f, 4, ProvenNew, None)
	if err := feed.Add(1<<62, id(5)); err == nil {
		t.Error("a generation that has no time")
	}
	must(t, feed.Add(9, id(6))) // everything rotates out
	wantCheck(t, "forgotten", f, 2, ProvenNew, None)
	wantCheck(t, "not forgotten", f, 6, Maybe, None)
}

// What begins before the feed is open was perhaps not fed from its start.
func TestRotationWhileLoading(t *testing.T) {
	clock := &hand{}
	f := mustNew(t, small(clock))
	feed := f.Begin(Source{})
	coverAll(t, f, feed)
	clock.move(10 * time.Second)
	f.Add(id(1))
	must(t, feed.Open(time.Now().Add(time.Hour)))
	wantCheck(t, "began while loading", f, 2, Unknown, NotCovered)
	must(t, feed.Covered(1, 7))
	wantCheck(t, "covered", f, 2, ProvenNew, None)
}

func TestAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mustNew(t, Options{Window: time.Hour, Rate: 1})
		want := func(when string, n uint64, before time.Duration, want bool, why string) {
			t.Helper()
			if got, reason := f.Absent(id(n), before); got != want || reason != why {
				t.Errorf("%s: %v %q, want %v %q", when, got, reason, want, why)
			}
		}
		want("no feed", 1, time.Minute, false, "not_covered")
		feed := f.Begin(Source{})
		coverAll(t, f, feed)
		want("loading", 1, time.Minute, false, "loading")
		must(t, feed.Through(time.Now()))
		f.Add(id(2))
		want("through", 1, time.Minute, true, "")
		want("added", 2, time.Minute, false, "maybe")
		wantCheck(t, "Check needs Open", f, 1, Unknown, Expired)
		time.Sleep(time.Minute)
		want("just", 1, time.Minute, true, "")
		time.Sleep(time.Nanosecond)
		want("behind", 1, time.Minute, false, "expired")
		must(t, feed.Through(time.Now().Add(-time.Second)))
		must(t, feed.Through(time.Now().Add(-time.Hour)))
		want("followed", 1, time.Minute, true, "")
		must(t, feed.Open(time.Now().Add(time.Second)))
		want("open", 1, 0, true, "")
	})
}

// A machine that was suspended has no monotonic time of it, but its wall clock has.
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
		if c.at.before(until) != c.open {
			t.Errorf("%s: open is %v", name, !c.open)
		}
		if (c.at.since(now) <= time.Minute) != c.open {
			t.Errorf("%s: since is %v", name, c.at.since(now))
		}
	}
	must(t, feed.Open(time.Now().Round(0).Add(time.Minute)))
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
	if got, want := join(kinds), "lost covered rotated lost lost"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
	if got, want := join(states), "loading   shared"; got != want {
		t.Errorf("states %q, want %q", got, want)
	}
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
