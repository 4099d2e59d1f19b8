package pipeline

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
			require.Equal(t, model[0], r.pop(), "step %d", step)
			model = model[1:]
		} else {
			r.push(step)
			model = append(model, step)
		}
		require.Equal(t, len(model), r.len(), "step %d", step)
	}
	assert.True(t, slices.Equal(r.elements(), model), "the elements differ from the model's")
}

func TestRingGivesMemoryBack(t *testing.T) {
	var r ring[*int]
	for range 5000 {
		r.push(new(int))
	}
	for r.len() > 0 {
		r.pop()
		require.True(t, len(r.buf) <= minRing || len(r.buf) <= 4*r.len()+4,
			"%d elements in %d places", r.len(), len(r.buf))
	}
	assert.Len(t, r.buf, minRing, "places of an empty ring")
	for i, p := range r.buf {
		assert.Nil(t, p, "place %d keeps a popped element alive", i)
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
	assert.Zero(t, allocs, "allocations")
}
