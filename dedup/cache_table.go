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

	"github.com/onceward/onceward/dedup/driver"
)

const (
	cacheWays = 7 // slots of a set, which with its head fill a cache line
	// cacheEntryBytes is what an entry without a fingerprint, label or result occupies:
	// the runtime has a size class of just that.
	cacheEntryBytes = 96
	cacheMoreBytes  = 64 // the same for its second part
	cacheSetBytes   = int(unsafe.Sizeof(cacheSet{}))
)

// cacheEntry is a finished key. It never changes once it is in the table, so a reader
// that holds it sees one key's record and no mixture of two. Instants count from the start
// of the cache, on the monotonic clock.
type cacheEntry struct {
	// The fields that every hit reads come first, within one cache line.
	id       driver.ID
	deadline time.Duration
	epoch    uint64

	more    *cacheMore    // nil for most: a Kafka message has an origin and no result
	expires time.Duration // of the record in the store
	ended   time.Duration // when the key became done
	fence   uint64
	source  uint64 // Origin.Digest
	offset  int64

	partition, generation, attempt int32

	state    driver.State
	noResult bool
}

// cacheMore is the part that few entries need.
type cacheMore struct {
	result      []byte
	label       string
	fingerprint driver.Fingerprint
}

// newCacheEntry leaves deadline and epoch to the caller. It keeps copies: a label may be cut
// from a message that is a thousand times larger.
func newCacheEntry(id driver.ID, rec *Record, learnt time.Duration) *cacheEntry {
	e := &cacheEntry{
		id: id, expires: learnt + rec.Remaining, ended: learnt - rec.Age, fence: rec.Fence,
		source: rec.Origin.Digest(), offset: rec.Origin.Offset,
		partition: rec.Origin.Partition, generation: rec.Origin.Generation,
		attempt: int32(min(rec.Attempt, 1<<31-1)), state: rec.State, noResult: rec.NoResult,
	}
	if rec.Result != nil || rec.Label != "" || rec.Fingerprint != (driver.Fingerprint{}) {
		e.more = &cacheMore{bytes.Clone(rec.Result), strings.Clone(rec.Label), rec.Fingerprint}
	}
	return e
}

// conflicts reports whether a hit with fp is a Mismatch instead of a Duplicate.
func (e *cacheEntry) conflicts(fp driver.Fingerprint) bool {
	return e.more != nil && e.more.fingerprint.Conflicts(fp)
}

// record fills rec with what the store would answer at now. The result is the caller's own.
func (e *cacheEntry) record(rec *Record, now time.Duration) {
	rec.State, rec.Attempt, rec.Fence, rec.NoResult = e.state, int(e.attempt), e.fence, e.noResult
	rec.Age, rec.Remaining = now-e.ended, e.expires-now
	o := &rec.Origin
	o.SourceDigest, o.Partition, o.Offset, o.Generation = e.source, e.partition, e.offset,
		e.generation
	if m := e.more; m != nil {
		rec.Result, rec.Label, rec.Fingerprint = bytes.Clone(m.result), m.label, m.fingerprint
	}
}

// size is what the entry occupies in memory.
func (e *cacheEntry) size() int64 {
	if e == nil {
		return 0
	}
	n := cacheEntryBytes
	if m := e.more; m != nil {
		// A clone's capacity is its size class; the classes of short texts are 8 or 16 apart.
		n += cacheMoreBytes + cap(m.result) + (len(m.label)+15)&^15
	}
	return int64(n)
}

// cacheSet has the seven slots where a key may be, in one cache line. Readers take no
// lock.
type cacheSet struct {
	// The low bytes of head hold one byte of each slot's key, so that a reader looks at few
	// slots. Its high byte has a bit for each slot that was hit recently.
	head  atomic.Uint64
	slots [cacheWays]atomic.Pointer[cacheEntry]
}

const cacheHits = 8 * cacheWays // where in head the bits of the hits begin

// cacheLock is held by writers. Sets share locks: with a lock, a set would exceed its cache line.
type cacheLock struct {
	mu   sync.Mutex
	hand uint // where the search for the next victim begins
}

// cacheTable is a set-associative table of bounded bytes: a key has seven possible slots, and
// a new key takes the slot of a neighbor that was not hit recently (the clock algorithm).
// Entries differ in size, so the table counts bytes, and drops more than one entry for a
// large one.
type cacheTable struct {
	sets   []cacheSet
	locks  [64]cacheLock
	budget int64
	bytes  atomic.Int64
	hand   atomic.Uint64 // the set that drops an entry next when the bytes run out

	// epoch counts Forgets. The answer to a request from an older epoch is not added: it
	// may have left the store before the Forget got there.
	epoch atomic.Uint64
	// floor is the epoch in which the table was emptied: older entries are dead.
	floor atomic.Uint64
}

func newCacheTable(budget int) *cacheTable {
	t := &cacheTable{budget: int64(budget)}
	own := int(unsafe.Sizeof(*t))
	n := max((budget-own)/(cacheSetBytes+cacheWays*cacheEntryBytes), 1)
	t.sets = make([]cacheSet, n)
	t.bytes.Store(int64(own + n*cacheSetBytes))
	return t
}

// place returns the number of a key's set, and its tag. The bits of a digest are as good
// as random. Keys that were chosen to meet in one set would only evict each other.
func (t *cacheTable) place(id *driver.ID) (set uint64, tag uint8) {
	set, _ = bits.Mul64(binary.LittleEndian.Uint64(id[:8]), uint64(len(t.sets)))
	return set, id[15]
}

// lock locks a set for writing.
func (t *cacheTable) lock(set uint64) (*cacheSet, *cacheLock) {
	l := &t.locks[set%uint64(len(t.locks))]
	l.mu.Lock()
	return &t.sets[set], l
}

// find returns the entry of a key, expired or not, or nil. It takes no lock and writes
// nothing but the mark of a first hit.
func (t *cacheTable) find(id *driver.ID) *cacheEntry {
	set, tag := t.place(id)
	s := &t.sets[set]
	i, e := s.find(id, tag)
	if e == nil {
		return nil
	}
	if !s.hit(i) {
		s.head.Or(1 << (cacheHits + i))
	}
	return e
}

func (s *cacheSet) hit(i int) bool { return s.head.Load()>>(cacheHits+i)&1 != 0 }

func (s *cacheSet) unhit(i int) { s.head.And(^uint64(1 << (cacheHits + i))) }

// find compares the whole key: the tags only tell where to look, and may be those of an
// entry that is being replaced.
func (s *cacheSet) find(id *driver.ID, tag uint8) (int, *cacheEntry) {
	for m := matchTags(s.head.Load(), tag); m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m) / 8
		if e := s.slots[i].Load(); e != nil && e.id == *id {
			return i, e
		}
	}
	return 0, nil
}

// matchTags marks the bytes of head that equal tag, all in one step (Hacker's Delight,
// 6-1), except the byte of the hit bits. It may mark one byte too many.
func matchTags(head uint64, tag uint8) uint64 {
	const ones, highs = 0x0101010101010101, 0x80808080808080
	x := head ^ ones*uint64(tag)
	return (x - ones) &^ x & highs
}

// alive reports whether an entry may be shown: its deadline has not passed, and the table was
// not emptied after the entry was asked for.
func (t *cacheTable) alive(e *cacheEntry, now time.Duration) bool {
	return now < e.deadline && e.epoch >= t.floor.Load()
}

// put adds or replaces an entry, unless something was forgotten since it was asked for.
func (t *cacheTable) put(e *cacheEntry, now time.Duration) {
	if t.add(e, now) > t.budget {
		t.shrink(now)
	}
}

// add returns the bytes that are now in use.
func (t *cacheTable) add(e *cacheEntry, now time.Duration) int64 {
	set, tag := t.place(&e.id)
	s, l := t.lock(set)
	defer l.mu.Unlock()
	// Under the lock: a Forget raises the epoch before it takes the lock of its key, so
	// it either stops us here or removes what we add.
	if e.epoch != t.epoch.Load() {
		return 0
	}
	i, old := s.find(&e.id, tag)
	if old == nil {
		i = t.victim(s, l, now)
		old = s.slots[i].Load()
	}
	s.replace(i, tag, e)
	return t.bytes.Add(e.size() - old.size())
}

// replace needs the lock. A reader that runs at the same time may find another key's entry
// under the new tag, or none, and then misses.
func (s *cacheSet) replace(i int, tag uint8, e *cacheEntry) {
	shift := 8 * i
	s.head.And(^(uint64(0xff)<<shift | 1<<(cacheHits+i)))
	s.head.Or(uint64(tag) << shift)
	s.slots[i].Store(e)
}

// victim returns the slot that a new entry takes: one that is empty or dead, else the next
// one that was not hit since the hand last passed it. It needs the lock.
func (t *cacheTable) victim(s *cacheSet, l *cacheLock, now time.Duration) int {
	for i := range s.slots {
		if e := s.slots[i].Load(); e == nil || !t.alive(e, now) {
			return i
		}
	}
	return max(t.oldest(s, l, now), 0)
}

// oldest moves the hand over a set until it finds an entry that is dead, or that was not hit
// since the hand last passed it. It returns -1 for an empty set, or when readers set the hit
// bits as fast as it clears them. It needs the lock.
func (t *cacheTable) oldest(s *cacheSet, l *cacheLock, now time.Duration) int {
	for range 2 * cacheWays {
		i := int(l.hand % cacheWays)
		l.hand++
		switch e := s.slots[i].Load(); {
		case e == nil:
		case !s.hit(i), !t.alive(e, now):
			return i
		default:
			s.unhit(i)
		}
	}
	return -1
}

// shrink drops one entry of each set in turn, until the table is within its budget.
func (t *cacheTable) shrink(now time.Duration) {
	for t.bytes.Load() > t.budget {
		s, l := t.lock(t.hand.Add(1) % uint64(len(t.sets)))
		if i := t.oldest(s, l, now); i >= 0 {
			t.drop(s, i)
		}
		l.mu.Unlock()
	}
}

// drop needs the lock.
func (t *cacheTable) drop(s *cacheSet, i int) {
	t.bytes.Add(-s.slots[i].Swap(nil).size())
}

// remove drops a key. Answers to questions that are under way are not added afterwards.
func (t *cacheTable) remove(id *driver.ID) {
	t.epoch.Add(1)
	set, tag := t.place(id)
	s, l := t.lock(set)
	defer l.mu.Unlock()
	if i, e := s.find(id, tag); e != nil {
		t.drop(s, i)
	}
}

// empty makes every entry dead. Answers to questions that are under way are not added
// afterwards. New entries reuse the memory.
func (t *cacheTable) empty() { t.floor.Store(t.epoch.Add(1)) }
