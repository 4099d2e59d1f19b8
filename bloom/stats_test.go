package bloom

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// State returns the same numbers as Stats. An observer gets them now and then.
func TestStateIsThatOfStats(t *testing.T) {
	f, err := New(Options{Window: time.Hour, Rate: 10})
	require.NoError(t, err)
	_, _, _, reason := f.State()
	assert.Equal(t, "not_covered", reason)
	for i := range 1000 {
		f.Add([16]byte{byte(i), byte(i >> 8)})
	}
	f.Wrong(1)
	fill, estimated, observed, _ := f.State()
	s := f.Stats()
	assert.Equal(t, s.Fill, fill)
	assert.NotZero(t, fill)
	assert.Equal(t, s.Estimated, estimated)
	assert.Equal(t, s.Observed, observed)
	assert.EqualValues(t, 1, observed)
}
