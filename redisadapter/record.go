package redisadapter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
)

// The record as it lies in Redis. internal/redisscript/lua/record.lua documents the
// layout and reads and writes it at the server; a test holds the two together.
const (
	recordVersion = 1
	headerSize    = 34
	fenceAt       = 8
	ownerAt       = 26
	ownerRest     = 8 // second half of the token, in progress only

	flagNoResult    = 0x001
	flagDanger      = 0x002
	flagLate        = 0x004
	flagForgotten   = 0x008
	flagFloor       = 0x010
	flagFingerprint = 0x020
	flagOrigin      = 0x040
	flagLabel       = 0x080
	flagSteps       = 0x100
	flagResult      = 0x200
	flagKept        = 0x400
	flagsKnown      = 0x7ff

	originSize = 24
	keptSize   = 6
)

// record is the decoded form.
type record struct {
	state       byte
	noResult    bool
	danger      bool // the irreversible part may have begun
	late        bool // succeeded was written by somebody who held nothing
	forgotten   bool // what Forget leaves behind
	fence       uint64
	attempt     uint32
	span        uint64   // ms: the hold in progress, the server's clock at the end
	kept        uint64   // ms from the end for which it is remembered; 0 when not written
	owner       [16]byte // in progress; else its first half, and zeros
	floor       uint64
	fingerprint dedup.Fingerprint
	origin      dedup.Origin // SourceDigest in place of Source
	label       string
	steps       []byte
	result      []byte // nil when there is none
}

// states are those that a record can have; others are StateAbsent.
var states = [256]dedup.State{
	redisscript.InProgress: dedup.StateInProgress,
	redisscript.Succeeded:  dedup.StateSucceeded,
	redisscript.Failed:     dedup.StateFailed,
	redisscript.Released:   dedup.StateReleased,
	redisscript.Uncertain:  dedup.StateUncertain,
}

// view is the record as callers see it. What Forget left behind is an absent key, and a
// lapsed claim whose irreversible part may have begun is uncertain.
func (r *record) view(left, age time.Duration) dedup.Record {
	if r.forgotten {
		return dedup.Record{}
	}
	state := states[r.state]
	if state == dedup.StateInProgress && r.danger && left <= 0 {
		// It is remembered for its hold from when its lease lapsed.
		state, left = dedup.StateUncertain, left+redisscript.FromMillis(int64(r.span))
	}
	return dedup.Record{
		State: state, Attempt: int(r.attempt), Fence: r.fence,
		Result: r.result, NoResult: r.noResult,
		Fingerprint: r.fingerprint, Origin: r.origin, Label: r.label,
		Danger: r.danger, Steps: r.steps, Age: age, Remaining: left,
	}
}

var errTruncated = errors.New("record is truncated")

// decodeRecord reads a record. It accepts exactly what record.lua accepts.
func decodeRecord(s string) (record, error) {
	var room [256]byte // on the stack: nothing of it is kept
	b := append(room[:0], s...)
	switch {
	case len(b) < headerSize:
		return record{}, errTruncated
	case b[0] != recordVersion:
		return record{}, fmt.Errorf("record has version 0x%02x", b[0])
	case uint64(binary.BigEndian.Uint32(b[4:])) != uint64(len(b)):
		return record{}, errTruncated
	}
	flags := binary.BigEndian.Uint16(b[2:])
	r := record{
		state:     b[1],
		noResult:  flags&flagNoResult != 0,
		danger:    flags&flagDanger != 0,
		late:      flags&flagLate != 0,
		forgotten: flags&flagForgotten != 0,
		fence:     binary.BigEndian.Uint64(b[8:]),
		attempt:   binary.BigEndian.Uint32(b[16:]),
		span:      millis48(b[20:]),
	}
	if states[r.state] == dedup.StateAbsent || flags > flagsKnown ||
		r.fence > redisscript.MaxFence {
		return record{}, fmt.Errorf("record has state %d, flags %#x, fence %d",
			r.state, flags, r.fence)
	}
	return r, r.decodeSections(b, flags)
}

// decodeSections reads what follows the header.
func (r *record) decodeSections(b []byte, flags uint16) error {
	c := cursor{rest: b[headerSize:]}
	copy(r.owner[:], b[ownerAt:headerSize])
	if r.state == redisscript.InProgress {
		copy(r.owner[8:], c.take(ownerRest))
	}
	if flags&flagFloor != 0 {
		r.floor = binary.BigEndian.Uint64(c.take(8))
	}
	if flags&flagFingerprint != 0 {
		copy(r.fingerprint[:], c.take(len(r.fingerprint)))
	}
	if flags&flagOrigin != 0 {
		r.origin = decodeOrigin(c.take(originSize))
	}
	if flags&flagLabel != 0 {
		r.label = string(c.take(int(c.take(1)[0])))
	}
	if flags&flagSteps != 0 {
		r.steps = bytes.Clone(c.take(int(binary.BigEndian.Uint32(c.take(4)))))
	}
	if flags&flagKept != 0 {
		r.kept = millis48(c.take(keptSize))
	}
	if flags&flagResult != 0 {
		r.result, c.rest = append([]byte{}, c.rest...), nil
	}
	switch {
	case c.short:
		return errTruncated
	case len(c.rest) > 0:
		return fmt.Errorf("record has %d bytes too many", len(c.rest))
	case r.floor > redisscript.MaxFence:
		return fmt.Errorf("record has floor %d", r.floor)
	}
	return nil
}

// cursor takes bytes from the front and remembers when there were too few.
type cursor struct {
	rest  []byte
	short bool
}

// zeros are longer than any field of fixed size.
var zeros [64]byte

// take returns the next n bytes, or zeros when there are not that many.
func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.rest) {
		c.short, c.rest = true, nil
		return zeros[:]
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

// encodeRecord writes a record: the twin of encode in record.lua.
func encodeRecord(r *record) string { return string(appendRecord(nil, r)) }

// appendRecord appends a record. It allocates nothing of its own: claims and plain
// completions write their values with it, a batch into one buffer.
func appendRecord(b []byte, r *record) []byte {
	begin := len(b)
	b = append(b, recordVersion, r.state, 0, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, r.fence)
	b = binary.BigEndian.AppendUint32(b, r.attempt)
	b = appendMillis48(b, r.span)
	if b = append(b, r.owner[:8]...); r.state == redisscript.InProgress {
		b = append(b, r.owner[8:]...)
	}
	flags := r.flags()
	if r.floor > 0 {
		b = binary.BigEndian.AppendUint64(b, r.floor)
	}
	if flags&flagFingerprint != 0 {
		b = append(b, r.fingerprint[:]...)
	}
	if flags&flagOrigin != 0 {
		b = appendOrigin(b, r.origin)
	}
	if r.label != "" {
		b = append(append(b, byte(len(r.label))), r.label...)
	}
	if len(r.steps) > 0 {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(r.steps))), r.steps...)
	}
	if r.kept > 0 {
		b = appendMillis48(b, r.kept)
	}
	b = append(b, r.result...)
	binary.BigEndian.PutUint16(b[begin+2:], flags)
	binary.BigEndian.PutUint32(b[begin+4:], uint32(len(b)-begin))
	return b
}

// firstHalf is what is kept of a token when its attempt has ended.
func firstHalf(t dedup.Token) (half [16]byte) {
	copy(half[:8], t[:8])
	return half
}

func (r *record) half() [8]byte { return [8]byte(r.owner[:8]) }

// flags announce which sections follow.
func (r *record) flags() uint16 {
	flags := flagged(r.noResult, flagNoResult) | flagged(r.danger, flagDanger) |
		flagged(r.late, flagLate) | flagged(r.forgotten, flagForgotten)
	return flags |
		flagged(r.floor > 0, flagFloor) |
		flagged(r.fingerprint != dedup.Fingerprint{}, flagFingerprint) |
		flagged(r.origin != dedup.Origin{}, flagOrigin) |
		flagged(r.label != "", flagLabel) |
		flagged(len(r.steps) > 0, flagSteps) |
		flagged(r.kept > 0, flagKept) |
		flagged(r.result != nil, flagResult)
}

func flagged(present bool, flag uint16) uint16 {
	if present {
		return flag
	}
	return 0
}

// millis48 reads six bytes.
func millis48(b []byte) uint64 {
	return uint64(binary.BigEndian.Uint16(b))<<32 | uint64(binary.BigEndian.Uint32(b[2:]))
}

func appendMillis48(b []byte, v uint64) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, uint16(v>>32)), uint32(v))
}

// encodeOrigin writes the section of an origin, empty for the zero Origin.
func encodeOrigin(o dedup.Origin) string {
	if o == (dedup.Origin{}) {
		return ""
	}
	return string(appendOrigin(nil, o))
}

func appendOrigin(b []byte, o dedup.Origin) []byte {
	b = binary.BigEndian.AppendUint64(b, o.Digest())
	b = binary.BigEndian.AppendUint32(b, uint32(o.Partition))
	b = binary.BigEndian.AppendUint64(b, uint64(o.Offset))
	return binary.BigEndian.AppendUint32(b, uint32(o.Generation))
}

func decodeOrigin(b []byte) dedup.Origin {
	return dedup.Origin{
		SourceDigest: binary.BigEndian.Uint64(b),
		Partition:    int32(binary.BigEndian.Uint32(b[8:])),
		Offset:       int64(binary.BigEndian.Uint64(b[12:])),
		Generation:   int32(binary.BigEndian.Uint32(b[20:])),
	}
}
