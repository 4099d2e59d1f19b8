package outbox

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHeaders(t *testing.T) {
	for _, headers := range [][]Header{
		{},
		{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "", Value: []byte{}}},
		{{Key: "long", Value: bytes.Repeat([]byte{0xff}, 60_000)}},
	} {
		got, err := decodeHeaders(encodeHeaders(headers))
		require.NoError(t, err)
		assert.Equal(t, headers, got)
	}
}

// Headers that are read are the same when they are written again, and torn ones are not read.
func FuzzHeaders(f *testing.F) {
	whole := encodeHeaders([]Header{{Key: "k", Value: []byte("v")}, {Key: "n"}})
	for n := range len(whole) {
		_, err := decodeHeaders(whole[:n])
		assert.Error(f, err)
		f.Add(whole[:n])
	}
	f.Add(whole)
	f.Add([]byte{headerVersion, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		headers, err := decodeHeaders(b)
		if err != nil {
			return
		}
		again, err := decodeHeaders(encodeHeaders(headers))
		require.NoError(t, err)
		assert.Equal(t, headers, again)
	})
}
