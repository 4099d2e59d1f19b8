package pipeline

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// Errors of [Tracker.Track]. Both leave the tracker as it was.
var (
	// ErrOffsetOrder says that an offset is not above the one received before it.
	ErrOffsetOrder = errors.New("pipeline: offset is not above the one received before it")
	// ErrOffsetRange says that an offset is negative or is the highest one possible.
	ErrOffsetRange = errors.New("pipeline: offset is out of range")
)

// finished replaces the receive time of an entry that is done.
const finished = -1

// Tracker knows which received offsets of one claim are finished, and the offset from which a
// successor would have to start: the watermark.
//
// The watermark runs over the offsets that were received. A partition has gaps (control records,
// aborted transactions, compaction), so nothing here assumes that the offset after n is n+1. The
// one exception is Kafka's own: after n is finished, the offset to commit is n+1.
//
// One Tracker serves one claim, from an assignment to its revocation. A claim that starts again
// gets a new one. The zero value is ready to use and must not be copied. All methods are safe for
// concurrent use. Every operation is O(1) amortized. A tracked offset costs 16 bytes until
// everything below it is finished too, at worst 64 while a burst drains.
type Tracker struct {
	mu    sync.Mutex
	epoch time.Time // receive times are counted from here on the monotonic clock
	// received holds the offsets from the oldest unfinished one on, in receive order.
	received   ring[entry]
	dropped    uint64 // entries that have left received at its front
	unfinished int
	last       int64 // offset received last, if dropped+len > 0
	watermark  int64 // next offset to commit, if dropped > 0
}

type entry struct {
	offset int64
	at     int64 // nanoseconds after epoch, or finished
}

// Slot stands for one tracked offset. It is a small value to be copied freely. The
// zero Slot belongs to no tracker.
type Slot struct {
	tracker *Tracker
	seq     uint64
}

// Track notes that offset was received and returns its slot. Call it in receive
// order, before anything else happens to the message.
//
// It returns an error that wraps [ErrOffsetOrder] when offset is not above the one
// before: the client has gone back, with a claim that restarted or an offset that was
// reset. This tracker no longer describes the messages that are delivered.
// The caller must not run the message under this tracker; end the claim or begin a
// new one. It returns [ErrOffsetRange] for a negative offset and for [math.MaxInt64],
// which has no offset after it.
func (t *Tracker) Track(offset int64) (Slot, error) {
	return t.TrackAll(1, func(int) int64 { return offset })
}

// TrackAll tracks n offsets as Track does, in order: all of them or none. It returns the first
// slot; [Slot.Plus] gives the others.
func (t *Tracker) TrackAll(n int, offset func(i int) int64) (Slot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(n, offset); err != nil {
		return Slot{}, err
	}
	seq, now := t.dropped+uint64(t.received.len()), time.Now()
	if seq == 0 {
		t.epoch = now
	}
	at := int64(now.Sub(t.epoch))
	for i := range n {
		t.last = offset(i)
		t.received.push(entry{offset: t.last, at: at})
	}
	t.unfinished += n
	return Slot{tracker: t, seq: seq}, nil
}

// check returns the fault of offsets that were received, or nil.
func (t *Tracker) check(n int, offset func(i int) int64) error {
	last, known := t.last, t.dropped > 0 || t.received.len() > 0
	for i := range n {
		next := offset(i)
		switch {
		case next < 0 || next == math.MaxInt64:
			return fmt.Errorf("%w: %d", ErrOffsetRange, next)
		case known && next <= last:
			return fmt.Errorf("%w: %d after %d", ErrOffsetOrder, next, last)
		}
		last, known = next, true
	}
	return nil
}

// Plus returns the slot of the n-th offset that was tracked after the offset of s.
func (s Slot) Plus(n int) Slot { return Slot{tracker: s.tracker, seq: s.seq + uint64(n)} }

// Done finishes the slot and reports whether this call finished it: only the first call does, even
// among concurrent ones. A zero Slot returns false.
func (s Slot) Done() bool {
	if s.tracker == nil {
		return false
	}
	return s.tracker.FinishAll(1, func(int) Slot { return s }) == 1
}

// FinishAll finishes n slots of this tracker, as [Slot.Done] does. It returns how many it has
// finished.
func (t *Tracker) FinishAll(n int, slot func(i int) Slot) (done int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range n {
		if s := slot(i); s.tracker == t && t.finish(s.seq) {
			done++
		}
	}
	for t.received.len() > 0 && t.received.at(0).at == finished {
		t.watermark = t.received.pop().offset + 1
		t.dropped++
	}
	t.unfinished -= done
	return done
}

// finish finishes an entry, and reports whether it was unfinished before.
func (t *Tracker) finish(seq uint64) bool {
	if seq < t.dropped {
		return false
	}
	e := t.received.at(int(seq - t.dropped))
	if e.at == finished {
		return false
	}
	e.at = finished
	return true
}

// Watermark returns the offset to commit: one above the last offset below which everything received
// is finished. It only grows. Until the first received offset is finished there is nothing to
// commit: moved is false and next is zero. Reading it changes nothing.
func (t *Tracker) Watermark() (next int64, moved bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watermark, t.dropped > 0
}

// Len returns how many received offsets are held: the unfinished ones and those that finished above
// an unfinished one. A [Backpressure] must bound this number, and not the unfinished ones alone:
// one stuck message holds the watermark while all others finish, and a crash would deliver all of
// them again.
func (t *Tracker) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.received.len()
}

// Progress has what a [Tracker] knows at one moment.
type Progress struct {
	// Received is the offset received last, -1 before the first one.
	Received int64
	// Watermark is the next offset to commit, -1 before there is one.
	Watermark int64
	// Held is [Tracker.Len].
	Held int
	// Unfinished is how many of the held ones are not finished.
	Unfinished int
	// Oldest is the lowest unfinished offset, which holds the watermark; -1 where everything is
	// finished.
	Oldest int64
	// Age is the time since Oldest was tracked; zero where everything is finished.
	Age time.Duration
}

// Progress returns a consistent reading for metrics and alerts.
func (t *Tracker) Progress() Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := Progress{Received: -1, Watermark: -1, Held: t.received.len(), Unfinished: t.unfinished,
		Oldest: -1}
	if t.dropped > 0 {
		p.Received, p.Watermark = t.last, t.watermark
	}
	if p.Held > 0 {
		// The front is always unfinished: FinishAll drops finished ones.
		front := t.received.at(0)
		p.Received = t.last
		p.Oldest, p.Age = front.offset, time.Since(t.epoch)-time.Duration(front.at)
	}
	return p
}
