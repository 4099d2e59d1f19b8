package stepcode

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNewerSteps prevents steps that a later version has written, in whatever form, from being read
// as those of this one, and written over.
func TestNewerSteps(t *testing.T) {
	b := Encode([]Step{{Name: "charge", Kind: Value, Value: []byte("v")}})
	list, err := Decode(b)
	require.NoError(t, err)
	require.Len(t, list, 1, "our own")
	for _, version := range []byte{0, version + 1, 255} {
		b[0] = version
		_, err := Decode(b)
		assert.Error(t, err, "version %d", version)
	}
}
