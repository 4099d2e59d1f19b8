package owned

import (
	"sync/atomic"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// begin is a batch of keys that began together: a field of the partition's run. The field is
// removed as a whole, when the last key has ended. Each key has a place in the batch, so a key that
// ends twice counts once.
type begin struct {
	name  string
	blob  string        // the ids, for a caller that sends it again
	ready atomic.Bool   // blob is there
	fence atomic.Uint64 // of its claims, once it was answered
	at    atomic.Int64  // when it began: ms since 1970, by the server's clock
	from  uint64        // the epoch of an earlier owner; 0 for a batch of ours

	// Ownership.mu guards these fields once other goroutines know of the batch.
	left []uint64 // a bit for each place whose key has not ended
	n    int      // the number of those bits
	// the entry at each place, for attempts of this process; nil for a batch of an earlier owner
	entries []*entry
	sending int         // calls that have it in a batch write: until they end, it may be written
	again   bool        // it was sent more than once
	naming  *batchWrite // the last batch write that removes its field
}

// fill gives a new batch n places.
func (b *begin) fill(n int) {
	b.left, b.n = make([]uint64, (n+63)/64), n
	for place := range n {
		b.left[place/64] |= 1 << (place % 64)
	}
}

// batchSlot is a key's place in a batch.
type batchSlot struct {
	of    *begin
	place int
	took  bool // in batchWrite.name
}

func (s batchSlot) left() bool { return s.of.left[s.place/64]>>(s.place%64)&1 != 0 }

// flip marks a key as ended, or, when it is called again, as not ended.
func (s batchSlot) flip() { s.of.left[s.place/64] ^= 1 << (s.place % 64) }

// newBegin makes a begin with a name of its own. The begin counts as being sent until o.sent is
// called.
func (o *Ownership) newBegin() *begin {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fields++
	b := &begin{name: script.FieldName(o.epoch, o.fields), sending: 1}
	b.at.Store(o.clock.Load())
	o.begins[b] = struct{}{}
	return b
}

// resending notes that one more call is sending the batch.
func (o *Ownership) resending(b *begin) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b.sending++
	b.again = true
}

// sent notes that a call that sent the batch has its answer, or will get none. If a batch's field
// were removed before that, the call might write it again.
func (o *Ownership) sent(all []*begin) {
	if len(all) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range all {
		if b.sending--; b.sending == 0 && b.n == 0 {
			o.whole(b, nil)
		}
	}
}

// whole drops a batch whose keys have all ended. The next batch write removes the batch's field,
// unless the batch write with has removed it. The mutex is held.
func (o *Ownership) whole(b *begin, with *batchWrite) {
	delete(o.begins, b)
	if b.ready.Load() && (with == nil || b.naming != with || b.again) {
		o.over = append(o.over, b.name)
	}
}

// settle notes that a key of a batch has ended, unless it had ended before. The mutex is held.
func (o *Ownership) settle(s batchSlot) { o.settleWith(s, nil) }

func (o *Ownership) settleWith(s batchSlot, with *batchWrite) {
	if s.of == nil || !s.left() {
		return
	}
	s.flip()
	s.let()
	if s.of.n--; s.of.n == 0 && s.of.sending == 0 {
		o.whole(s.of, with)
	}
}

// let forgets the entry that had this place. The Ownership's mutex is held.
func (s batchSlot) let() {
	if s.of.entries != nil {
		s.of.entries[s.place] = nil
	}
}

// settleAll notes that the keys at these places have ended with the batch write with.
func (o *Ownership) settleAll(all []batchSlot, with *batchWrite) {
	if len(all) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range all {
		o.settleWith(s, with)
	}
}

// name lists the fields that this batch write can remove: it marks all keys of such a field that
// have not ended. To find these fields, name ends the keys, looks which batches are then empty, and
// takes the ends back. The Ownership's mutex is held.
func (t *batchWrite) name() {
	for i := range t.settled {
		s := &t.settled[i]
		if s.of.naming == t {
			s.of.naming = nil
		}
		if s.took = s.left(); s.took {
			s.flip()
			s.of.n--
		}
	}
	for _, s := range t.settled {
		if s.took && s.of.n == 0 && s.of.sending == 0 && s.of.naming != t {
			s.of.naming = t
			t.Ended = append(t.Ended, s.of.name)
		}
	}
	for _, s := range t.settled {
		if s.took {
			s.flip()
			s.of.n++
		}
	}
}

// leave takes an entry out of the batch in which it had begun, and returns its slot. The caller
// settles the slot, or gives it to a suspect. The shard's mutex is held.
func (e *entry) leave() batchSlot {
	if e.batch == nil {
		return batchSlot{}
	}
	s := batchSlot{of: e.batch, place: int(e.place)}
	e.fence, e.batch = s.of.fence.Load(), nil
	e.o.inFlight.Add(-1)
	return s
}

// settle notes that a key that had begun has ended. Its shard's mutex is held.
func (e *entry) settle() {
	s := e.leave()
	if s.of == nil {
		return
	}
	e.o.mu.Lock()
	defer e.o.mu.Unlock()
	e.o.settle(s)
}

// suspected turns the key into a suspect, because its attempt has lost it. Its shard's mutex is
// held.
func (e *entry) suspected() {
	s := e.leave()
	if s.of == nil {
		return
	}
	e.o.mu.Lock()
	defer e.o.mu.Unlock()
	e.o.suspect(e.member, s)
	s.let()
}

// reserve reserves room for n more keys in flight, or for fewer if there is less room. It returns
// for how many.
func (o *Ownership) reserve(n int) int {
	for {
		was := o.inFlight.Load()
		room := min(int64(n), int64(o.s.opts.InFlight)-was)
		if room <= 0 {
			return 0
		}
		if o.inFlight.CompareAndSwap(was, was+room) {
			return int(room)
		}
	}
}
