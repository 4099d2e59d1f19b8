package dedup

import (
	"hash/maphash"
	"sync"
)

// idTable finds the repetitions in a batch: a hash table of open addressing, which is
// used again, because a map of its own would be the third part of what a batch costs.
type idTable struct {
	// slots hold the number of an entry and one, or zero, and are twice as many at least.
	// Their number is a power of two.
	slots   []uint32
	entries []idEntry
}

type idEntry struct {
	id   ID
	item int
}

// idTableKept bounds the entries of a table that is kept for the next batch.
const idTableKept = 4 * storeBatch

var (
	idTables = sync.Pool{New: func() any { return new(idTable) }}
	// idSeed keeps keys that were chosen to have similar digests from meeting.
	idSeed = maphash.MakeSeed()
)

// newIDTable returns an empty table for n items. Free it after use.
func newIDTable(n int) *idTable {
	t, _ := idTables.Get().(*idTable)
	size := 2
	for size < 2*n {
		size *= 2
	}
	if cap(t.slots) < size {
		t.slots, t.entries = make([]uint32, size), make([]idEntry, 0, n)
	}
	t.slots, t.entries = t.slots[:size], t.entries[:0]
	clear(t.slots)
	return t
}

// free gives the table back.
func (t *idTable) free() {
	if cap(t.entries) <= idTableKept {
		idTables.Put(t)
	}
}

// add adds an item, unless its ID is there already: then it returns the first item of it.
func (t *idTable) add(id *ID, item int) (first int, again bool) {
	mask := uint64(len(t.slots) - 1)
	for at := maphash.Bytes(idSeed, id[:]) & mask; ; at = (at + 1) & mask {
		n := t.slots[at]
		if n == 0 {
			t.entries = append(t.entries, idEntry{*id, item})
			t.slots[at] = uint32(len(t.entries))
			return item, false
		}
		if e := &t.entries[n-1]; e.id == *id {
			return e.item, true
		}
	}
}
