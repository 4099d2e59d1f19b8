package stepcode

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNewerSteps: steps that a later version has written, in whatever form, must not be read as
// steps of this version, and so not be overwritten.
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
