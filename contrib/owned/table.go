package owned

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

const (
	shards = 16
	// lingering is how many ended entries a shard keeps, for callers that send the same end again.
	lingering = 64
	// minHeads is the number of chains that a shard begins with: a power of two.
	minHeads = 64
)

// state is who arbitrates an entry's key, and how far the claim has come.
type state uint8

const (
	asking  state = iota // made before the filter was asked; no answer has mentioned it yet
	begun                // the filter had proven it new; granted when its batch has a fence
	claimed              // the inner store has the claim
	ended                // as its end says; kept for a while for a caller that sends the end again
	gone                 // not in the table any more
)

// end is the way in which a key has ended.
type end uint8

const (
	marked  end = iota // by its owner, in the sets
	unused             // given back without an attempt
	passed             // at the inner store, which knows how; only the fence matters
	overrun            // another caller has said that the effect has landed
)

// entry is a key that an attempt of this process has. It exists from before the filter is asked
// until after the attempt's end was answered. The shard's mutex guards all fields but those of the
// first block.
type entry struct {
	id     driver.ID
	token  driver.Token
	hash   uint64
	member int64
	o      *Ownership
	origin origin
	next   *entry // of its chain

	state   state
	end     end           // how it has ended
	batch   *begin        // for a key that has begun without the inner store
	place   int32         // in batch
	until   time.Duration // end of the lease, as the time since Store.born
	hold    time.Duration // how long the entry is kept after until
	touched time.Duration // when the touch was on record, as the time since Store.born
	gen     atomic.Int64  // one more than the newest generation into which we fed the key
	fence   uint64        // of the claim
	inner   uint64        // the claim's fence at the inner store
	runs    int           // attempts that the inner store does not know of
	attempt int
}

// origin is the part of a driver.Origin that an entry keeps; the Ownership has the source.
type origin struct {
	offset     int64
	generation int32
}

// table holds the entries. It belongs to the Store and outlives every Ownership, so a handler that
// still runs keeps its entry. The hash is seeded, because IDs are digests that anybody can compute.
type table struct {
	seed   maphash.Seed
	shards [shards]shard
}

// shard is a part of the table with its own mutex and chains, so that a batch takes each mutex
// once.
type shard struct {
	mu    sync.Mutex
	heads []*entry
	n     int
	ended [lingering]*entry // a ring
	at    int
	_     [64]byte // keeps the neighbor's mutex out of this cache line
}

func newTable() *table {
	t := &table{seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].heads = make([]*entry, minHeads)
	}
	return t
}

func (t *table) hash(id *driver.ID) uint64 { return maphash.Bytes(t.seed, id[:]) }

func (t *table) shard(hash uint64) *shard { return &t.shards[hash%shards] }

// chain returns the place of the first entry for a hash. Here and below, the caller holds the
// mutex.
func (s *shard) chain(hash uint64) **entry {
	return &s.heads[hash/shards&uint64(len(s.heads)-1)]
}

// find returns the entry of an ID, or nil.
func (s *shard) find(hash uint64, id *driver.ID) *entry {
	for e := *s.chain(hash); e != nil; e = e.next {
		if e.hash == hash && e.id == *id {
			return e
		}
	}
	return nil
}

// live does what find does, but drops an entry whose hold is over at the time now, as other stores
// do.
func (s *shard) live(hash uint64, id *driver.ID, now time.Duration) *entry {
	e := s.find(hash, id)
	if e != nil && e.expired(now) {
		s.expire(e)
		return nil
	}
	return e
}

// expired reports whether the attempts of the key are forgotten by now. An entry in a state that
// the switch does not name never expires.
func (e *entry) expired(now time.Duration) bool {
	switch {
	case e.state == begun, e.state == ended && e.end == unused:
		return now >= e.until+e.hold
	case e.state == claimed: // irreversible: the inner store keeps it for longer
		return now >= e.until+e.hold+e.o.s.opts.Window
	}
	return false
}

// expire drops an entry, and what it has begun.
func (s *shard) expire(e *entry) {
	if e.state == begun {
		e.settle()
	}
	s.drop(e)
}

// shown returns the fence that the caller of this claim gets, or has got.
func (e *entry) shown() uint64 {
	if e.batch != nil {
		return e.batch.fence.Load()
	}
	return e.fence
}

// isOf reports whether the entry belongs to the attempt with this token. While the entry has a
// claim, the fence must match too, if it is given, because the same token may have had an earlier
// claim. See [driver.Finish].Fence.
func (e *entry) isOf(token driver.Token, fence uint64) bool {
	held := e.state == begun || e.state == claimed
	return e.token == token && (!held || fence == 0 || fence == e.shown())
}

// told replaces the fence in a record of the inner store by the fence that the caller of this claim
// got.
func (e *entry) told(rec *driver.Record) {
	switch {
	case rec.State == driver.StateAbsent:
	case rec.Fence == e.inner:
		rec.Fence = e.fence
	default:
		rec.Fence = max(rec.Fence, e.fence)
	}
}

// put adds an entry. The table has no other entry for its ID.
func (s *shard) put(e *entry) {
	if s.n >= 2*len(s.heads) {
		s.grow()
	}
	at := s.chain(e.hash)
	e.next, *at = *at, e
	s.n++
}

func (s *shard) grow() {
	old := s.heads
	s.heads = make([]*entry, 2*len(old))
	for _, e := range old {
		for e != nil {
			next := e.next
			at := s.chain(e.hash)
			e.next, *at = *at, e
			e = next
		}
	}
}

// drop removes an entry, if it is in the table.
func (s *shard) drop(e *entry) {
	if e.state == gone {
		return
	}
	e.state = gone
	for at := s.chain(e.hash); *at != nil; at = &(*at).next {
		if *at == e {
			*at, e.next = e.next, nil
			s.n--
			return
		}
	}
}

// linger keeps an ended entry until lingering others of its shard have ended.
func (s *shard) linger(e *entry, how end) {
	e.state, e.end = ended, how
	if old := s.ended[s.at]; old != nil && old.state == ended {
		s.drop(old)
	}
	s.ended[s.at] = e
	s.at = (s.at + 1) % lingering
}

// each calls f for every entry, and drops the entries for which f returns false.
func (t *table) each(f func(e *entry) bool) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, e := range s.heads {
			for e != nil {
				next := e.next
				if !f(e) {
					s.drop(e)
				}
				e = next
			}
		}
		s.mu.Unlock()
	}
}

// byShard orders the items of a batch by shard, so that each mutex is taken once.
type byShard struct {
	hashes []uint64
	order  []int32
	ends   [shards]int32 // of each shard's part of order
}

// sort fills b with n items, in the order of their shards.
func (b *byShard) sort(n int, hash func(i int) uint64) {
	b.hashes, b.order = resize(b.hashes, n), resize(b.order, n)
	var count [shards]int32
	for i := range n {
		b.hashes[i] = hash(i)
		count[b.hashes[i]%shards]++
	}
	at := int32(0)
	for i, c := range count {
		count[i] = at
		at += c
		b.ends[i] = at
	}
	for i := range n {
		c := &count[b.hashes[i]%shards]
		b.order[*c] = int32(i) // the index of an item
		*c++
	}
}

// each calls f with every item, holding the mutex of its shard.
func (b *byShard) each(t *table, f func(s *shard, i int)) {
	from := int32(0)
	for n := range t.shards {
		to := b.ends[n]
		if from == to {
			continue
		}
		s := &t.shards[n]
		s.mu.Lock()
		for _, i := range b.order[from:to] {
			f(s, int(i))
		}
		s.mu.Unlock()
		from = to
	}
}

// resize returns a slice of n items, with any contents.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
