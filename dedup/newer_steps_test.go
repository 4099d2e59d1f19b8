package dedup

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNewerSteps prevents steps that a later version has written, in whatever form, from being read
// as those of this one, and written over.
func TestNewerSteps(t *testing.T) {
	b := encodeSteps([]step{{name: "charge", kind: stepValue, value: []byte("v")}})
	list, err := decodeSteps(b)
	require.NoError(t, err)
	require.Len(t, list, 1, "our own")
	for _, version := range []byte{0, stepsVersion + 1, 255} {
		b[0] = version
		_, err := decodeSteps(b)
		assert.Error(t, err, "version %d", version)
	}
}
