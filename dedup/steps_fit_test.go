package dedup

import (
	"fmt"
	"testing"

	"github.com/onceward/onceward/dedup/internal/stepcode"
	"github.com/stretchr/testify/require"
)

// Whatever steps are added, all names fit into the room there is.
func FuzzStepsFit(f *testing.F) {
	f.Add([]byte{255, 255, 255, 0, 1, 2, 64})
	f.Fuzz(func(t *testing.T, sizes []byte) {
		var s steps
		for i, size := range sizes[:min(len(sizes), stepcode.Max)] {
			name := fmt.Sprintf("%0*d", stepcode.MaxName-i%3, i)
			_, _, err := s.begin(nil, name)
			require.NoError(t, err)
			value := make([]byte, int(size)<<8)
			s.add(stepcode.Step{Name: name, Kind: stepcode.Value, Value: value})
			s.leave(name)
		}
		blob, n := s.blob()
		list, err := stepcode.Decode(blob)
		require.NoError(t, err)
		require.Len(t, list, n)
		require.LessOrEqual(t, len(blob), stepcode.MaxBytes)
	})
}
