package must

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFailedStepIsTheErrorOfItsMeasurement(t *testing.T) {
	broken := errors.New("broken")
	after := false
	err := Try(func() {
		Do(nil)
		assert.Equal(t, 7, Get(7, nil))
		True(true, "never")
		Get(0, broken)
		after = true
	})
	require.ErrorIs(t, err, broken)
	assert.False(t, after, "the steps after the failure ran")
	require.EqualError(t, Try(func() { True(false, "%d of %d", 1, 2) }), "1 of 2")
	require.NoError(t, Try(func() {}))
}

// Try catches only failed steps. Any other panic ends the program as usual.
func TestOtherPanicsGoOn(t *testing.T) {
	assert.PanicsWithValue(t, "mistake", func() { _ = Try(func() { panic("mistake") }) })
}
