package dedup

import (
	"math"
	"time"
)

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

// find returns the live record of id, or nil. An expired one is dropped on the way.
func (s *memoryStore) find(id ID, now time.Duration) *memoryRecord {
	rec := s.records[id]
	if rec != nil && rec.expires <= now {
		s.drop(rec)
		return nil
	}
	return rec
}

// add makes an empty record that never expires, or returns nil when capacity live ones
// are held. Its caller schedules it before the mutex is freed.
func (s *memoryStore) add(id ID, now time.Duration) *memoryRecord {
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
