package pipeline

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func (r *ring[T]) elements() []T {
	var out []T
	for i := range r.len() {
		out = append(out, *r.at(i))
	}
	return out
}

func TestRingIsAQueue(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var r ring[int]
	var model []int
	for step := range 20000 {
		// Long phases of filling and of emptying cross every resize both ways.
		if filling := step/1500%2 == 0; rnd.IntN(10) < 3 == filling && len(model) > 0 {
			if got := r.pop(); got != model[0] {
				t.Fatalf("step %d: popped %d, want %d", step, got, model[0])
			}
			model = model[1:]
		} else {
			r.push(step)
			model = append(model, step)
		}
		if r.len() != len(model) {
			t.Fatalf("step %d: length %d, want %d", step, r.len(), len(model))
		}
	}
	if !slices.Equal(r.elements(), model) {
		t.Error("the elements differ from the model's")
	}
}

func TestRingGivesMemoryBack(t *testing.T) {
	var r ring[*int]
	for range 5000 {
		r.push(new(int))
	}
	for r.len() > 0 {
		r.pop()
		if len(r.buf) > minRing && len(r.buf) > 4*r.len()+4 {
			t.Fatalf("%d elements in %d places", r.len(), len(r.buf))
		}
	}
	if len(r.buf) != minRing {
		t.Errorf("an empty ring keeps %d places", len(r.buf))
	}
	for i, p := range r.buf {
		if p != nil {
			t.Errorf("place %d keeps a popped element alive", i)
		}
	}
}

// A queue that stays about one size must not allocate.
func TestRingSwingsWithoutAllocating(t *testing.T) {
	var r ring[int]
	for i := range 64 {
		r.push(i)
	}
	allocs := testing.AllocsPerRun(100, func() {
		for i := range 40 {
			r.push(i)
		}
		for range 40 {
			r.pop()
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
