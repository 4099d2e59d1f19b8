package quota

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestEachNameHasItsOwn(t *testing.T) {
	q := New(2)
	for i, step := range []struct {
		name string
		want bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"a", false}} {
		if got := q.Enter(step.name); got != step.want {
			t.Errorf("step %d: %s enters: %t", i, step.name, got)
		}
	}
	q.Leave("a")
	if !q.Enter("a") || q.Enter("a") {
		t.Error("leaving did not free exactly one place")
	}
}

// Names come from clients, so the memory for them must not grow.
func TestNothingIsKeptOfWhoHasLeft(t *testing.T) {
	q := New(1)
	for _, name := range []string{"a", "b", "c"} {
		q.Enter(name)
		q.Enter(name) // refused, and not counted
		q.Leave(name)
	}
	if len(q.held) != 0 {
		t.Errorf("kept: %v", q.held)
	}
}

func TestWithoutABound(t *testing.T) {
	q := New(0)
	for range 100 {
		if !q.Enter("a") {
			t.Fatal("refused")
		}
	}
	q.Leave("a")
}

func TestNeverMoreThanItsPlaces(t *testing.T) {
	const most = 3
	q := New(most)
	var inside, entered atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 500 {
				if !q.Enter("a") {
					continue
				}
				if n := inside.Add(1); n > most {
					t.Errorf("%d are inside", n)
				}
				entered.Add(1)
				inside.Add(-1)
				q.Leave("a")
			}
		})
	}
	all.Wait()
	if entered.Load() == 0 || len(q.held) != 0 {
		t.Errorf("%d have entered, kept: %v", entered.Load(), q.held)
	}
}
