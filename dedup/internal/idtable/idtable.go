// Package idtable finds the repetitions in a batch.
package idtable

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"sync"
)

// Table finds the repetitions in a batch. It is a hash table of open addressing that later
// batches use again, because a new map would be a third of the cost of a batch.
type Table struct {
	// A slot holds the index of an entry plus one, or zero. There are at least twice as many slots
	// as items. Their number is a power of two.
	slots   []uint32
	entries []entry
	n       int // entries that are taken
}

type entry struct {
	id   [16]byte
	item int
}

// mostKept bounds the entries of a table that is kept for the next batch.
const mostKept = 4 << 10

var (
	tables = sync.Pool{New: func() any { return new(Table) }}
	// seed keeps keys whose digests were chosen to be similar from meeting in one slot.
	seed = [2]uint64{rand.Uint64(), rand.Uint64()}
)

// New returns an empty table for n items. Free it after use.
func New(n int) *Table {
	t, _ := tables.Get().(*Table)
	size := 2
	for size < 2*n {
		size *= 2
	}
	if cap(t.slots) < size {
		t.slots, t.entries = make([]uint32, size), make([]entry, size/2)
	}
	t.slots, t.n = t.slots[:size], 0
	clear(t.slots)
	return t
}

// Free gives the table back.
func (t *Table) Free() {
	if len(t.entries) <= mostKept {
		tables.Put(t)
	}
}

// slotOf spreads IDs. Digests are spread already, unless somebody chose them to collide, so
// a secret and one multiplication are enough.
func slotOf(id *[16]byte) uint64 {
	high, low := bits.Mul64(binary.LittleEndian.Uint64(id[:8])^seed[0],
		binary.LittleEndian.Uint64(id[8:])^seed[1])
	return high ^ low
}

// Add adds an item. If the table already has its ID, Add returns the first item with that ID
// instead.
func (t *Table) Add(id *[16]byte, item int) (first int, again bool) {
	mask := uint64(len(t.slots) - 1)
	for at := slotOf(id) & mask; ; at = (at + 1) & mask {
		n := t.slots[at]
		if n == 0 {
			t.entries[t.n] = entry{*id, item}
			t.n++
			t.slots[at] = uint32(t.n)
			return item, false
		}
		if e := &t.entries[n-1]; e.id == *id {
			return e.item, true
		}
	}
}
