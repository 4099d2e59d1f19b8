package idtable

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// A table that is used again knows no ID of the batch before, whether that was larger or smaller.
func TestIDTableFindsRepetitions(t *testing.T) {
	id := func(i int) (id [16]byte) {
		binary.BigEndian.PutUint32(id[12:], uint32(i))
		return id
	}
	for _, n := range []int{1, 300, 2, 5000, 256} {
		table := New(2 * n)
		for i := range 2 * n {
			key := id(i % n)
			first, again := table.Add(&key, i)
			require.Equal(t, i%n, first)
			require.Equal(t, i >= n, again)
		}
		table.Free()
	}
}
