package quota

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachNameHasItsOwn(t *testing.T) {
	q := New(2)
	for i, step := range []struct {
		name string
		want bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"a", false}} {
		assert.Equal(t, step.want, q.Enter(step.name), "step %d: %s enters", i, step.name)
	}
	q.Leave("a")
	assert.True(t, q.Enter("a"), "leaving did not free exactly one place")
	assert.False(t, q.Enter("a"), "leaving did not free exactly one place")
}

// Names come from clients, so the memory for them must not grow.
func TestNothingIsKeptOfWhoHasLeft(t *testing.T) {
	q := New(1)
	for _, name := range []string{"a", "b", "c"} {
		q.Enter(name)
		q.Enter(name) // refused, and not counted
		q.Leave(name)
	}
	assert.Empty(t, q.held, "kept")
}

func TestWithoutABound(t *testing.T) {
	q := New(0)
	for range 100 {
		require.True(t, q.Enter("a"), "refused")
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
				assert.LessOrEqual(t, inside.Add(1), int64(most), "inside")
				entered.Add(1)
				inside.Add(-1)
				q.Leave("a")
			}
		})
	}
	all.Wait()
	assert.NotZero(t, entered.Load())
	assert.Empty(t, q.held)
}
