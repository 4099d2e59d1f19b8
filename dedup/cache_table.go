package dedup

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

const (
	cacheWays = 8 // slots of a set; matchTags counts on eight
	// cacheEntryBytes is what an entry without a fingerprint, label or result occupies:
	// the runtime has a size class of just that.
	cacheEntryBytes = 96
	cacheMoreBytes  = 64 // likewise for its second part
	cacheSetBytes   = int(unsafe.Sizeof(cacheSet{}))
)

// cacheEntry is a finished key. It never changes once it is in the table, so whoever
// holds it reads one key's record and no mixture of two. Instants count from the start
// of the cache, on the monotonic clock.
type cacheEntry struct {
	id       ID
	more     *cacheMore // nil for most: a Kafka message has an origin and no result
	deadline time.Duration
	expires  time.Duration // of the record in the store
	ended    time.Duration // when the key became done
	fence    uint64
	epoch    uint64
	source   uint64 // Origin.Digest
	offset   int64

	partition, generation, attempt int32

	state    State
	noResult bool
}

// cacheMore is the part of an entry that few need.
type cacheMore struct {
	result      []byte
	label       string
	fingerprint Fingerprint
}

// newCacheEntry leaves deadline and epoch to the caller. What it keeps is a copy: a
// label may be cut from a message that is a thousand times larger.
func newCacheEntry(id ID, rec *Record, learnt time.Duration) *cacheEntry {
	e := &cacheEntry{
		id: id, expires: learnt + rec.Remaining, ended: learnt - rec.Age, fence: rec.Fence,
		source: rec.Origin.Digest(), offset: rec.Origin.Offset,
		partition: rec.Origin.Partition, generation: rec.Origin.Generation,
		attempt: int32(min(rec.Attempt, 1<<31-1)), state: rec.State, noResult: rec.NoResult,
	}
	if rec.Result != nil || rec.Label != "" || rec.Fingerprint != (Fingerprint{}) {
		e.more = &cacheMore{bytes.Clone(rec.Result), strings.Clone(rec.Label), rec.Fingerprint}
	}
	return e
}

// conflicts tells a Mismatch from a Duplicate.
func (e *cacheEntry) conflicts(fp Fingerprint) bool {
	return e.more != nil && e.more.fingerprint.Conflicts(fp)
}

// record is what the store would answer at now. The result is the caller's own.
func (e *cacheEntry) record(now time.Duration) Record {
	rec := Record{
		State: e.state, Attempt: int(e.attempt), Fence: e.fence, NoResult: e.noResult,
		Origin: Origin{SourceDigest: e.source, Partition: e.partition, Offset: e.offset, Generation: e.generation},
		Age:    now - e.ended, Remaining: e.expires - now,
	}
	if m := e.more; m != nil {
		rec.Result, rec.Label, rec.Fingerprint = bytes.Clone(m.result), m.label, m.fingerprint
	}
	return rec
}

// size is what the entry occupies in memory.
func (e *cacheEntry) size() int64 {
	if e == nil {
		return 0
	}
	n := cacheEntryBytes
	if m := e.more; m != nil {
		// The capacity of a clone is its size class; those of short texts are 8 or 16 apart.
		n += cacheMoreBytes + cap(m.result) + (len(m.label)+15)&^15
	}
	return int64(n)
}

// cacheSet is the eight places where a key may be. Readers take no lock.
type cacheSet struct {
	tags   atomic.Uint64 // a byte of each slot's key, to look at few slots
	recent atomic.Uint32 // a bit for each slot that was hit since the hand passed it
	hand   uint32        // guarded by mu
	mu     sync.Mutex    // held by writers
	slots  [cacheWays]atomic.Pointer[cacheEntry]
}

// cacheTable is a set-associative table of bounded bytes: a key has eight places, and a
// new one takes that of a neighbour that was not hit for long (the clock algorithm).
// Entries differ in size, so the table counts bytes, and drops more than one entry for a
// large one.
type cacheTable struct {
	sets   []cacheSet
	budget int64
	bytes  atomic.Int64
	hand   atomic.Uint64 // the set that gives next when the bytes run out

	// epoch counts what was forgotten. What was asked for under an older epoch is not
	// added: its answer may have left the store before the Forget got there.
	epoch atomic.Uint64
	// floor is the epoch in which the table was emptied: older entries are dead.
	floor atomic.Uint64
}

func newCacheTable(budget int) *cacheTable {
	n := max(budget/(cacheSetBytes+cacheWays*cacheEntryBytes), 1)
	t := &cacheTable{sets: make([]cacheSet, n), budget: int64(budget)}
	t.bytes.Store(int64(n * cacheSetBytes))
	return t
}

// place returns the set of a key and its tag. The bits of a digest are as good as random;
// keys that were chosen to meet in one set would push out each other, and no more.
func (t *cacheTable) place(id *ID) (*cacheSet, uint8) {
	set, _ := bits.Mul64(binary.LittleEndian.Uint64(id[:8]), uint64(len(t.sets)))
	return &t.sets[set], id[15]
}

// find returns the entry of a key, expired or not, or nil. It takes no lock and writes
// nothing but the mark of a first hit.
func (t *cacheTable) find(id *ID) *cacheEntry {
	s, tag := t.place(id)
	i, e := s.find(id, tag)
	if e == nil {
		return nil
	}
	if bit := uint32(1) << i; s.recent.Load()&bit == 0 {
		s.recent.Or(bit)
	}
	return e
}

// find compares the whole key: the tags only tell where to look, and may be those of an
// entry that is being replaced.
func (s *cacheSet) find(id *ID, tag uint8) (int, *cacheEntry) {
	for m := matchTags(s.tags.Load(), tag); m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m) / 8
		if e := s.slots[i].Load(); e != nil && e.id == *id {
			return i, e
		}
	}
	return 0, nil
}

// matchTags marks the bytes of tags that are tag, all in one step (Hacker's Delight,
// 6-1). It may mark one too many.
func matchTags(tags uint64, tag uint8) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	x := tags ^ ones*uint64(tag)
	return (x - ones) &^ x & highs
}

// alive reports whether an entry may be shown: nobody emptied the table since, and its
// time is not over.
func (t *cacheTable) alive(e *cacheEntry, now time.Duration) bool {
	return now < e.deadline && e.epoch >= t.floor.Load()
}

// put adds or replaces an entry, unless something was forgotten since it was asked for.
func (t *cacheTable) put(e *cacheEntry, now time.Duration) {
	s, tag := t.place(&e.id)
	s.mu.Lock()
	// Under the lock: a Forget raises the epoch before it takes the lock of its key's
	// set, so it either stops us here or removes what we add.
	if e.epoch != t.epoch.Load() {
		s.mu.Unlock()
		return
	}
	i, old := s.find(&e.id, tag)
	if old == nil {
		i = s.victim(t, now)
		old = s.slots[i].Load()
	}
	s.replace(i, tag, e)
	total := t.bytes.Add(e.size() - old.size())
	s.mu.Unlock()
	if total > t.budget {
		t.shrink(now)
	}
}

// replace needs mu. A reader between the two stores finds another key's entry under the
// new tag, or none, and misses.
func (s *cacheSet) replace(i int, tag uint8, e *cacheEntry) {
	shift := 8 * i
	s.tags.Store(s.tags.Load()&^(0xff<<shift) | uint64(tag)<<shift)
	s.slots[i].Store(e)
	s.recent.And(^(uint32(1) << i))
}

// victim returns the slot that a new entry takes: one that is empty or dead, else the
// next that was not hit since the hand passed it. It needs mu.
func (s *cacheSet) victim(t *cacheTable, now time.Duration) int {
	for i := range s.slots {
		if e := s.slots[i].Load(); e == nil || !t.alive(e, now) {
			return i
		}
	}
	for { // readers may set marks as fast as we clear them, but not for long
		i := int(s.hand % cacheWays)
		s.hand++
		bit := uint32(1) << i
		if s.recent.Load()&bit == 0 || s.hand%(4*cacheWays) == 0 {
			return i
		}
		s.recent.And(^bit)
	}
}

// shrink drops entries until the budget is kept, one of each set in turn.
func (t *cacheTable) shrink(now time.Duration) {
	for t.bytes.Load() > t.budget {
		s := &t.sets[t.hand.Add(1)%uint64(len(t.sets))]
		s.mu.Lock()
		t.drop(s, s.oldest(t, now))
		s.mu.Unlock()
	}
}

// oldest is victim among the slots that are taken, or -1. It needs mu.
func (s *cacheSet) oldest(t *cacheTable, now time.Duration) int {
	for range 2 * cacheWays {
		i := int(s.hand % cacheWays)
		s.hand++
		e, bit := s.slots[i].Load(), uint32(1)<<i
		switch {
		case e == nil:
		case s.recent.Load()&bit == 0, !t.alive(e, now):
			return i
		default:
			s.recent.And(^bit)
		}
	}
	return -1
}

// drop needs the set's mu.
func (t *cacheTable) drop(s *cacheSet, i int) {
	if i < 0 {
		return
	}
	old := s.slots[i].Swap(nil)
	t.bytes.Add(-old.size())
}

// remove drops a key, and whatever is being asked for right now.
func (t *cacheTable) remove(id *ID) {
	t.epoch.Add(1)
	s, tag := t.place(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, e := s.find(id, tag); e != nil {
		t.drop(s, i)
	}
}

// empty makes every entry dead, and whatever is being asked for right now. The memory
// serves new entries.
func (t *cacheTable) empty() { t.floor.Store(t.epoch.Add(1)) }
