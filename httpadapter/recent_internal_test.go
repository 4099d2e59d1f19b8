package httpadapter

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Principals and keys come from clients, so the memory for them is bounded. A principal that keeps
// sending is not forgotten. Otherwise its storm would start with a new budget again and again.
func TestMemoryOfARetryBudgetIsBounded(t *testing.T) {
	b, err := NewRetryBudget(RetryBudgetConfig{Principals: 100, Keys: 1000, PerSecond: 1e-9,
		Most: 1})
	require.NoError(t, err)
	b.Admit("storm", "", "k", false)
	for i := range 10_000 {
		b.Admit(fmt.Sprint("p", i), "", fmt.Sprint("k", i), false)
		_, wait := b.Admit("storm", "", "k", false)
		if i > 0 {
			require.NotZero(t, wait, "the storm was forgotten after %d others", i)
		}
		require.LessOrEqual(t, len(b.buckets.young)+len(b.buckets.old), 100)
		require.LessOrEqual(t, len(b.keys.young)+len(b.keys.old), 1000)
	}
}

func TestRecentForgetsTheOldest(t *testing.T) {
	r := newRecent[int, string](4)
	for i := range 4 {
		r.put(i, "v")
	}
	r.put(0, "w") // this makes room, and 0 is young again
	for key, want := range map[int]string{0: "w", 1: "", 2: "v", 3: "v"} {
		got, ok := r.get(key)
		assert.Equal(t, want, got, key)
		assert.Equal(t, want != "", ok, key)
	}
}
