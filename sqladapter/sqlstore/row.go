package sqlstore

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// The bits of claimRow.flags. A newer version that keeps something else sets another bit; this
// version then calls the row unreadable, and leaves it alone.
const (
	flagIrreversible = 1 << iota // the irreversible part may have begun
	flagLate                     // ended by a Finish with EffectApplied whose caller held nothing
	flagNoResult                 // there was a result, which is not kept
	flagEmpty                    // the result has no bytes, which some drivers read as NULL
	flagsKnown       = 1<<iota - 1
)

const maxAsked = math.MaxInt16

// claimRow is a row of the store's table. Instants are microseconds since 1970 by the clock of the
// database. A row in StateAbsent holds only a fence and a floor: Forget has left it behind, or a
// key is about to be claimed.
type claimRow struct {
	id          driver.ID
	token       driver.Token // the owner while in progress; then the caller that wrote the end
	state       driver.State
	flags       int
	asked       int // how often a claim was made to find out about the key
	attempt     int
	fence       int64
	floor       int64 // owners with a fence up to this one were forgotten
	leaseEnd    int64 // when the newest claim ends, or was given up
	since       int64 // when the key was ended; before that, when MarkIrreversible was first called
	expires     int64
	fingerprint driver.Fingerprint
	origin      driver.Origin
	label       string
	steps       []byte
	result      []byte
	dirty       bool  // it must be written
	bad         error // why it cannot be read
}

func (r *claimRow) has(flag int) bool { return r.flags&flag != 0 }

func (r *claimRow) set(flag int, on bool) {
	r.flags &^= flag
	if on {
		r.flags |= flag
	}
}

// size returns the size of the columns that may be large, in bytes.
func (r *claimRow) size() int { return len(r.steps) + len(r.result) }

func (r *claimRow) terminal() bool {
	return r.state == driver.StateSucceeded || r.state == driver.StateFailed
}

// absent reports whether nothing is known of the key except a fence and a floor.
func (r *claimRow) absent(now int64) bool {
	return r.state == driver.StateAbsent || r.expires <= now
}

// heldBy reports whether token owns the claim, lapsed or not.
func (r *claimRow) heldBy(token driver.Token, now int64) bool {
	return !r.absent(now) && r.state == driver.StateInProgress && r.token == token
}

// holds reports whether an attempt owns the claim, lapsed or not. The same token with another fence
// is another claim: see [driver.Finish].Fence.
func (r *claimRow) holds(token driver.Token, fence uint64, now int64) bool {
	return r.heldBy(token, now) && (fence == 0 || fence == uint64(r.fence)) // never negative
}

// uncertain reports whether an attempt has ended after its effect might have begun.
func (r *claimRow) uncertain(now int64) bool {
	return r.state == driver.StateUncertain ||
		r.state == driver.StateInProgress && r.has(flagIrreversible) && r.leaseEnd <= now
}

// view returns the record as callers see it. It shares memory with the row, which was read for one
// caller only; a value that comes from a caller is cloned before it is put into the row.
func (r *claimRow) view(now int64) driver.Record {
	if r.absent(now) {
		return driver.Record{}
	}
	rec := driver.Record{
		State: r.state, Attempt: r.attempt, Fence: uint64(r.fence), // never negative
		Result: r.result, NoResult: r.has(flagNoResult),
		Fingerprint: r.fingerprint, Origin: r.origin, Label: r.label,
		Irreversible: r.has(flagIrreversible), Steps: r.steps, Remaining: span(now, r.expires),
	}
	switch {
	case r.uncertain(now):
		rec.State = driver.StateUncertain
	case r.state == driver.StateInProgress:
		rec.Remaining = span(now, r.leaseEnd)
	}
	if r.terminal() {
		rec.Age = max(span(r.since, now), 0)
	}
	return rec
}

// bind takes over what a claim or a change says about the message. A zero value leaves the known
// value.
func (r *claimRow) bind(f driver.Fingerprint, o driver.Origin, label string) {
	if f != (driver.Fingerprint{}) {
		r.fingerprint = f
	}
	if o != (driver.Origin{}) {
		r.origin = storedOrigin(o)
	}
	if label != "" {
		r.label = label
	}
}

// storedOrigin returns the part of an origin that is kept: a digest instead of the source.
func storedOrigin(o driver.Origin) driver.Origin {
	o.SourceDigest, o.Source = o.Digest(), ""
	return o
}

// check finds values that no known version has written.
func (r *claimRow) check(state, flags int64) error {
	switch {
	case state < 0 || state > int64(driver.StateUncertain):
		return fmt.Errorf("%w: state %d", driver.ErrUnreadable, state)
	case flags < 0 || flags > flagsKnown:
		return fmt.Errorf("%w: flags %#x", driver.ErrUnreadable, flags)
	case r.fence < 0 || r.floor < 0 || r.attempt < 0:
		return fmt.Errorf("%w: a negative number", driver.ErrUnreadable)
	}
	return nil
}

const originSize = 24

// packOrigin returns digest, partition, offset and generation, big-endian; nil for the zero Origin.
func packOrigin(o driver.Origin) []byte {
	if o == (driver.Origin{}) {
		return nil
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, originSize), o.Digest())
	b = binary.BigEndian.AppendUint32(b, uint32(o.Partition)) // its bits
	b = binary.BigEndian.AppendUint64(b, uint64(o.Offset))    // its bits
	return binary.BigEndian.AppendUint32(b, uint32(o.Generation))
}

// unpackOrigin is the reverse of packOrigin.
func unpackOrigin(b []byte) (o driver.Origin, err error) {
	switch len(b) {
	case 0:
		return o, nil
	case originSize:
	default:
		return o, fmt.Errorf("%w: origin of %d bytes", driver.ErrUnreadable, len(b))
	}
	return driver.Origin{
		SourceDigest: binary.BigEndian.Uint64(b),
		Partition:    int32(binary.BigEndian.Uint32(b[8:])),  // its bits
		Offset:       int64(binary.BigEndian.Uint64(b[12:])), // its bits
		Generation:   int32(binary.BigEndian.Uint32(b[20:])), // its bits
	}, nil
}

// micros rounds up, so that a positive duration never becomes zero.
func micros(d time.Duration) int64 {
	n := d.Microseconds()
	if d > time.Duration(n)*time.Microsecond {
		n++
	}
	return n
}

// later adds a duration that is not negative to an instant, and stops at the largest instant.
func later(at int64, d time.Duration) int64 {
	n := micros(d)
	if at > math.MaxInt64-n {
		return math.MaxInt64
	}
	return at + n
}

// span returns the time from one instant to another, at most what a Duration can hold.
func span(from, to int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(to-from, -most), most)) * time.Microsecond
}
