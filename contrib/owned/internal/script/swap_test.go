package script_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/internal/redistest"
)

// TestSwap prevents two callers that read the same value from both replacing it, and a caller whose
// reply was lost from taking its own value for another caller's.
func TestSwap(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		runner, key := script.NewRunner(b.Client), b.Prefix+":swap"
		for _, row := range []struct {
			name, old, value string
			swapped          bool
			now              string
		}{
			{"where nothing is, something was read", "x", "a", false, ""},
			{"the first", "", "a", true, "a"},
			{"its reply was lost", "", "a", true, "a"},
			{"another first", "", "b", false, "a"},
			{"the next", "a", "b", true, "b"},
			{"read before it", "a", "c", false, "b"},
		} {
			swapped, err := runner.Swap(t.Context(), key, row.old, row.value)
			require.NoError(t, err, row.name)
			assert.Equal(t, row.swapped, swapped, row.name)
			assert.Equal(t, row.now, b.Client.Get(t.Context(), key).Val(), row.name)
		}
		assert.Negative(t, b.Client.PTTL(t.Context(), key).Val(), "the key has an end")
	})
}
