package dedup

import (
	"encoding/binary"
	"testing"
)

// A table that was used before, for a larger batch or a smaller one, knows nothing of it.
func TestIDTableFindsRepetitions(t *testing.T) {
	id := func(i int) (id ID) {
		binary.BigEndian.PutUint32(id[12:], uint32(i))
		return id
	}
	for _, n := range []int{1, 300, 2, 5000, 256} {
		table := newIDTable(2 * n)
		for i := range 2 * n {
			key := id(i % n)
			first, again := table.add(&key, i)
			if first != i%n || again != (i >= n) {
				t.Fatalf("of %d, item %d: first %d, again %t", n, i, first, again)
			}
		}
		table.free()
	}
}
