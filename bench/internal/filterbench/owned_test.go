package filterbench

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
)

func embedded(t *testing.T) *server.Redis {
	t.Helper()
	redis, err := server.Open(t.Context(), server.Embedded, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := redis.Close(); err != nil {
			t.Error(err)
		}
	})
	return redis
}

// A stream has the duplicates that its name says, where a consumer can tell them from what is in
// flight.
func TestStreams(t *testing.T) {
	t.Parallel()
	const n = 40 * workers * batchIDs
	for _, share := range shares {
		for _, old := range []bool{false, true} {
			s := stream{share: share, old: old}
			m := s.make(n)
			// where it came first and last; -1: before the stream
			known, last := map[string]int{}, map[string]int{}
			for _, key := range m.old {
				if _, twice := known[key]; twice {
					t.Errorf("%+v: an old key ends twice", s)
				}
				known[key] = -1
			}
			repeated := 0
			for w := range workers {
				for i, key := range part(m.keys, w) {
					at, dup := known[key]
					switch {
					case !dup:
					case at < 0 != old:
						t.Fatalf("%+v: key %d repeats one at %d", s, i, at)
					case !old && (i-at < gap || i-last[key] > gap+recentSpan):
						t.Fatalf("%+v: key %d repeats one that came first at %d and last at %d",
							s, i, at, last[key])
					}
					last[key] = i
					if dup {
						repeated++
					} else {
						known[key] = i
					}
				}
			}
			least := float64(share)
			if !old { // the first of a worker have nothing to repeat
				least *= 1 - gap*workers/float64(n)
			}
			if got := 100 * float64(repeated) / n; got < least-0.5 || got > float64(share)+0.1 {
				t.Errorf("%+v: %.1f %% are duplicates", s, got)
			}
			if n-repeated != m.news || len(known)-len(m.old) != m.news {
				t.Errorf("%+v: %d of %d keys are new, and %d were said to be",
					s, n-repeated, n, m.news)
			}
			if again := s.make(n); again.keys[0] == m.keys[0] || again.news != m.news {
				t.Errorf("%+v: the next stream has the same keys, or fewer", s)
			}
		}
	}
}

// Every way of running a stream runs each of its new keys once, in every timing.
func TestOwnedRunsEachOnce(t *testing.T) {
	t.Parallel()
	e := &env{rounds: 1, redis: embedded(t)}
	var mu sync.Mutex
	ran := map[string]map[string]int{}
	e.effect = func(side, key string) {
		mu.Lock()
		defer mu.Unlock()
		if ran[side] == nil {
			ran[side] = map[string]int{}
		}
		ran[side][key]++
	}
	sides := []string{ownedTwo, ownedOne, sharedTwo, sharedOne, sharedSmall, rawSide}
	for _, s := range []stream{{share: 0}, {share: 90}, {share: 50, old: true}} {
		clear(ran)
		g := e.ownedGroup(s, "x")
		rows, err := harness.Runner{Rounds: 1, Budget: time.Millisecond}.Run(t.Context(),
			[]harness.Group{g})
		if err != nil {
			t.Fatal(err)
		}
		m := s.make(e.ownedKeys(s))
		const timings = 3 // two before the round that counts
		want := timings * (m.news + len(m.old))
		for _, side := range sides {
			if len(ran[side]) != want {
				t.Errorf("%+v, %s: %d keys ran, want %d", s, side, len(ran[side]), want)
			}
			for key, n := range ran[side] {
				if n != 1 {
					t.Fatalf("%+v, %s: %s ran %d times", s, side, key, n)
				}
			}
		}
		if got := slices.Sorted(maps.Keys(ran)); len(got) != len(sides) {
			t.Errorf("ran: %q", got)
		}
		for _, r := range rows {
			// the embedded one has none of its own
			if r.Value <= 0 && !strings.HasSuffix(r.Name, "Redis CPU") {
				t.Errorf("nothing was measured: %+v", r)
			}
		}
	}
}

// A side that loses keys, or runs some twice, is no figure.
func TestWrongNumberIsAnError(t *testing.T) {
	for _, ran := range []int{99, 101} {
		if err := consumeAll(t.Context(), counts(ran), make([]string, 2), 100, nil); err == nil {
			t.Errorf("%d of 100 is no error", ran)
		}
	}
	if err := consumeAll(t.Context(), counts(100), make([]string, 2), 100, nil); err != nil {
		t.Error(err)
	}
}

// counts says that it has run so many.
type counts int

func (c counts) run(_ context.Context, worker int, _ []string) (int, error) {
	if worker > 0 {
		return 0, nil
	}
	return int(c), nil
}

// What is folded later would be the work of another side's timing.
func TestTimingFolds(t *testing.T) {
	t.Parallel()
	redis, opened := embedded(t), &harness.Setup{}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	// sets of freshMembers
	o, err := openOwned(t.Context(), opened, redis.Addr, (&env{marks: 60_000}).oneGeneration)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := &loaded{e: &env{marks: freshMembers + 2*marksAtOnce}, o: o}
	work, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	if err := l.markAll(work); err != nil {
		t.Fatal(err)
	}
	if n, err := o.unfolded(t.Context(), 0); err != nil || n != 1 {
		t.Errorf("%d sets are to be folded, want 1: %v", n, err)
	}
	if err := o.fold(work); err != nil {
		t.Fatal(err)
	}
	if n, err := o.unfolded(t.Context(), 0); err != nil || n != 0 {
		t.Errorf("%d sets are left, %v", n, err)
	}
	if err := o.proven(0); err != nil {
		t.Error(err)
	}
	if err := o.proven(freshMembers + 3*marksAtOnce); err == nil {
		t.Error("keys that were claimed at the inner store count as proven new")
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	e, s := &env{rounds: 2, redis: embedded(t), marks: freshMembers + marksAtOnce}, &harness.Setup{}
	if err := errors.Join(e.measureLoad(t.Context(), s), s.Close()); err != nil {
		t.Fatal(err)
	}
	rows := s.Rows
	if len(rows) != 2 || rows[1].Rounds != 2 || !rows[1].OK || rows[1].Value <= 0 {
		t.Errorf("%+v", rows)
	}
}

// Streams are long enough for fresh sets to be folded within the timing.
func TestStreamsFillSets(t *testing.T) {
	t.Parallel()
	e := &env{freshSets: 2}
	for share, sets := range map[int]int{0: 2, 10: 2, 50: 1, 90: 1} {
		s := stream{share: share}
		m := s.make(e.ownedKeys(s))
		if each := m.news / workers; each < sets*freshMembers+batchIDs ||
			each > sets*freshMembers+5*batchIDs {
			t.Errorf("%d %%: %d new keys for %d sets", share, each, sets)
		}
	}
}
