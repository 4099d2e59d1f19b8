package dedup

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/ctxend"
	"github.com/onceward/onceward/dedup/internal/slab"
)

// Memory returns a [Store] inside this process, for tests, for programs that are one process,
// and as an example of the contract. Nothing survives a restart. It starts no goroutine, needs
// no closing, and copies results in and out.
//
// It holds at most capacity keys: claims, records, released keys, and what Forget leaves behind,
// each until it expires. A full store answers [driver.ErrStoreFull] to a claim of an absent key,
// and to a Mark or late Complete of one. Nothing is ever evicted, and renewing, finishing and
// taking over still work. A key costs about 300 bytes and its result. [New] refuses a capacity
// below 1. The clock is monotonic: in a testing/synctest bubble the store must be made inside
// the bubble.
func Memory(capacity int) Store {
	return &memoryStore{
		capacity: capacity,
		start:    time.Now(),
		records:  make(map[driver.ID]*memoryRecord),
	}
}

// memoryStore has one mutex and no shards. A batch takes it once, and the Deduper groups
// single calls into batches before they come here. Capacity and expiry are exact, because
// both are seen under the mutex.
type memoryStore struct {
	capacity int
	start    time.Time // every instant below is a time.Duration since then

	mu      sync.Mutex
	records map[driver.ID]*memoryRecord
	expiry  memoryHeap
	answers slab.Pool[driver.Answer]
	fence   uint64 // largest fence given out or shown so far
	forgets uint64 // how often Forget has forgotten something
}

// memoryRecord is one key. A forgotten key has StateAbsent, and keeps only its floor until it
// expires.
type memoryRecord struct {
	id          driver.ID
	token       driver.Token // owner in progress; later whoever wrote the end
	state       driver.State
	late        bool // the end was written by a Finish with EffectApplied that held no claim
	danger      bool // unfinished, and the irreversible part may have begun
	noResult    bool
	fingerprint driver.Fingerprint
	attempt     int
	fence       uint64
	floor       uint64 // owners with a fence up to this one were forgotten
	result      []byte // replaced whole, never written into
	steps       []byte // the same
	origin      driver.Origin
	label       string
	leaseEnd    time.Duration
	ended       time.Duration // when it became succeeded, failed or uncertain
	since       time.Duration // when it became dangerous
	asked       int           // claims since then
	expires     time.Duration
	slot        int // index in the expiry heap
}

// view returns the record as callers see it. Result and Steps still share the stored bytes:
// memoryBatch copies them once the mutex is free.
func (r *memoryRecord) view(now time.Duration) Record {
	if r == nil || r.state == driver.StateAbsent {
		return Record{}
	}
	rec := Record{
		State: r.state, Attempt: r.attempt, Fence: r.fence,
		Result: r.result, NoResult: r.noResult,
		Fingerprint: r.fingerprint, Origin: r.origin, Label: r.label,
		Irreversible: r.danger, Steps: r.steps, Remaining: r.expires - now,
	}
	switch {
	case r.uncertain(now):
		rec.State = driver.StateUncertain
	case r.state == driver.StateInProgress:
		rec.Remaining = r.leaseEnd - now
	}
	if terminal(r.state) {
		rec.Age = now - r.ended
	}
	return rec
}

// heldBy reports whether token owns the claim, lapsed or not.
func (r *memoryRecord) heldBy(token driver.Token) bool {
	return r != nil && r.state == driver.StateInProgress && r.token == token
}

// holds reports whether an attempt owns the claim, lapsed or not. With the same token and
// another fence it is another claim: see [driver.Finish].Fence.
func (r *memoryRecord) holds(token driver.Token, fence uint64) bool {
	return r.heldBy(token) && (fence == 0 || fence == r.fence)
}

// uncertain reports whether an attempt has ended when the effect might have begun.
func (r *memoryRecord) uncertain(now time.Duration) bool {
	return r.state == driver.StateUncertain || r.state == driver.StateInProgress && r.danger &&
		r.leaseEnd <= now
}

// bind copies what a claim or a change says about the message. A zero field leaves the known value
// as it is.
func (r *memoryRecord) bind(f driver.Fingerprint, o driver.Origin, label string) {
	if f != (driver.Fingerprint{}) {
		r.fingerprint = f
	}
	if o != (driver.Origin{}) {
		o.Source, o.SourceDigest = "", o.Digest()
		r.origin = o
	}
	if label != "" {
		r.label = label
	}
}

// Forgets tells caches of finished keys that something was forgotten; see [driver.ForgetCounter].
func (s *memoryStore) Forgets(ctx context.Context) (uint64, error) {
	if ctx.Err() != nil {
		return 0, ctxend.Error(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgets, nil
}

// Remembers returns how long this store has kept everything that was written to it: since
// it was made. See package layered.
func (s *memoryStore) Remembers() time.Duration { return time.Since(s.start) }

// Recycle takes answers back that have been read; see [driver.Recycler].
func (s *memoryStore) Recycle(answers []driver.Answer) { s.answers.Put(answers) }

// memoryBatch answers every item under one hold of the mutex, also drops some expired records
// there, and copies the results once the mutex is free.
func memoryBatch[T any](ctx context.Context, s *memoryStore, items []T,
	do func(*T, time.Duration) driver.Answer) []driver.Answer {
	if ctx.Err() != nil {
		return repeat(driver.Answer{Err: ctxend.Error(ctx)}, len(items))
	}
	answers := s.room(len(items))
	s.run(func(now time.Duration) {
		for i := range items {
			answers[i] = do(&items[i], now)
		}
		s.purge(now, 4*len(items))
	})
	for i := range answers {
		answers[i].Record.Result = bytes.Clone(answers[i].Record.Result)
		answers[i].Record.Steps = bytes.Clone(answers[i].Record.Steps)
	}
	return answers
}

// room returns n answers to fill. A single call never gives its answer back, so it gets a new one.
func (s *memoryStore) room(n int) []driver.Answer {
	if n == 1 {
		return make([]driver.Answer, 1)
	}
	return s.answers.Get(n)
}

// run reads the clock after taking the mutex, so that instants never run backwards
// from one call to the next.
func (s *memoryStore) run(do func(now time.Duration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(time.Since(s.start))
}

// memoryEntry is a record's place in the heap. The instant is never later than the
// record's expiry, but may be earlier: a renewal or a completion lengthens a record's life
// without touching the heap, and the entry is corrected when it comes to the top. So only
// shortening a life costs a walk up the heap.
type memoryEntry struct {
	at  time.Duration
	rec *memoryRecord
}

// memoryHeap is a binary min-heap by instant; each record knows its index.
type memoryHeap []memoryEntry

func (h memoryHeap) place(i int, e memoryEntry) {
	h[i] = e
	e.rec.slot = i
}

func (h memoryHeap) up(i int) {
	e := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].at <= e.at {
			break
		}
		h.place(i, h[parent])
		i = parent
	}
	h.place(i, e)
}

func (h memoryHeap) down(i int) {
	e := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if right := child + 1; right < len(h) && h[right].at < h[child].at {
			child = right
		}
		if e.at <= h[child].at {
			break
		}
		h.place(i, h[child])
		i = child
	}
	h.place(i, e)
}

// find returns the live record of id, or nil. It drops the record if that has expired.
func (s *memoryStore) find(id driver.ID, now time.Duration) *memoryRecord {
	rec := s.records[id]
	if rec != nil && rec.expires <= now {
		s.drop(rec)
		return nil
	}
	return rec
}

// add makes an empty record that never expires, or returns nil when the store holds capacity live
// records. Its caller schedules it before the mutex is freed.
func (s *memoryStore) add(id driver.ID, now time.Duration) *memoryRecord {
	for len(s.records) >= s.capacity {
		if s.expiry[0].at > now {
			return nil
		}
		s.purge(now, 1)
	}
	rec := &memoryRecord{id: id, expires: math.MaxInt64, slot: len(s.expiry)}
	s.records[id] = rec
	s.expiry = append(s.expiry, memoryEntry{at: rec.expires, rec: rec})
	return rec
}

// schedule sets when rec expires.
func (s *memoryStore) schedule(rec *memoryRecord, at time.Duration) {
	rec.expires = at
	if at < s.expiry[rec.slot].at {
		s.expiry[rec.slot].at = at
		s.expiry.up(rec.slot)
	}
}

// purge looks at up to budget entries whose instant has come. The budget keeps a call
// that follows a long silence from clearing a million records under the mutex.
func (s *memoryStore) purge(now time.Duration, budget int) {
	for ; budget > 0 && len(s.expiry) > 0 && s.expiry[0].at <= now; budget-- {
		rec := s.expiry[0].rec
		if rec.expires <= now {
			s.drop(rec)
			continue
		}
		s.expiry[0].at = rec.expires
		s.expiry.down(0)
	}
}

// drop takes rec out of the map and the heap.
func (s *memoryStore) drop(rec *memoryRecord) {
	delete(s.records, rec.id)
	last := len(s.expiry) - 1
	moved := s.expiry[last]
	s.expiry[last] = memoryEntry{}
	s.expiry = s.expiry[:last]
	if moved.rec == rec {
		return
	}
	s.expiry.place(rec.slot, moved)
	s.expiry.up(moved.rec.slot)
	s.expiry.down(moved.rec.slot)
}

func (s *memoryStore) checkCapacity() error {
	if s.capacity < 1 {
		return &InputError{Field: "capacity",
			Reason: fmt.Sprintf("of Memory is %d, at least 1 is needed", s.capacity)}
	}
	return nil
}

// memoryAdd adds a duration that is not negative. The sum stops at the largest time.Duration.
func memoryAdd(at, d time.Duration) time.Duration {
	if at > math.MaxInt64-d {
		return math.MaxInt64
	}
	return at + d
}
