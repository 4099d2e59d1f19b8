package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
)

// The record as it lies in Redis. internal/redisscript/lua/record.lua documents the layout, and
// reads and writes it at the server; a test compares the two.
const (
	RecordVersion = 1
	HeaderSize    = 34
	FenceAt       = 8
	OwnerAt       = 26
	OwnerRest     = 8 // second half of the token, in progress only

	flagNoResult     = 0x001
	flagIrreversible = 0x002
	flagLate         = 0x004
	flagForgotten    = 0x008
	flagFloor        = 0x010
	FlagFingerprint  = 0x020
	FlagOrigin       = 0x040
	FlagLabel        = 0x080
	flagSteps        = 0x100
	flagResult       = 0x200
	flagKept         = 0x400
	flagPlain        = 0x800
	flagsKnown       = 0xfff

	originSize = 24
	keptSize   = 6
)

// Record is the decoded form.
type Record struct {
	State       byte
	NoResult    bool
	danger      bool // the irreversible part may have begun
	Late        bool // an owner that had lost its claim has written succeeded
	forgotten   bool // Forget has left it behind
	Plain       bool // an end that compares nothing may be on its way: no result is kept
	Fence       uint64
	Attempt     uint32
	Span        uint64   // ms: the hold of a claim; for an end, the server's clock
	Kept        uint64   // ms for which an end is remembered; 0 when not written
	Owner       [16]byte // the token of a claim; for an end its first half, and zeros
	Floor       uint64
	Fingerprint driver.Fingerprint
	Origin      driver.Origin // SourceDigest instead of Source
	Label       string
	steps       []byte
	Result      []byte // nil when there is none
}

// States are those that a record can have; others are StateAbsent.
var States = [256]driver.State{
	redisscript.InProgress: driver.StateInProgress,
	redisscript.Succeeded:  driver.StateSucceeded,
	redisscript.Failed:     driver.StateFailed,
	redisscript.Released:   driver.StateReleased,
	redisscript.Uncertain:  driver.StateUncertain,
}

// View returns the record as callers see it. A record that Forget has left behind is an absent key,
// and a lapsed claim whose irreversible part may have begun is uncertain.
func (r *Record) View(left, age time.Duration) driver.Record {
	if r.forgotten {
		return driver.Record{}
	}
	state := States[r.State]
	if state == driver.StateInProgress && r.danger && left <= 0 {
		// The record is kept for its hold after its lease has lapsed.
		state, left = driver.StateUncertain, left+redisscript.FromMillis(int64(r.Span))
	}
	return driver.Record{
		State: state, Attempt: int(r.Attempt), Fence: r.Fence,
		Result: r.Result, NoResult: r.NoResult,
		Fingerprint: r.Fingerprint, Origin: r.Origin, Label: r.Label,
		Irreversible: r.danger, Steps: r.steps, Age: age, Remaining: left,
	}
}

var errTruncated = errors.New("record is truncated")

// DecodeRecord reads a record. It accepts exactly what record.lua accepts.
func DecodeRecord(s string) (Record, error) {
	var room [256]byte // on the stack, and not kept
	b := append(room[:0], s...)
	switch {
	case len(b) < HeaderSize:
		return Record{}, errTruncated
	case b[0] != RecordVersion:
		return Record{}, fmt.Errorf("record has version 0x%02x", b[0])
	case uint64(binary.BigEndian.Uint32(b[4:])) != uint64(len(b)):
		return Record{}, errTruncated
	}
	flags := binary.BigEndian.Uint16(b[2:])
	r := Record{
		State:     b[1],
		NoResult:  flags&flagNoResult != 0,
		danger:    flags&flagIrreversible != 0,
		Late:      flags&flagLate != 0,
		forgotten: flags&flagForgotten != 0,
		Plain:     flags&flagPlain != 0,
		Fence:     binary.BigEndian.Uint64(b[8:]),
		Attempt:   binary.BigEndian.Uint32(b[16:]),
		Span:      millis48(b[20:]),
	}
	if States[r.State] == driver.StateAbsent || flags > flagsKnown ||
		r.Fence > redisscript.MaxFence {
		return Record{}, fmt.Errorf("record has state %d, flags %#x, fence %d",
			r.State, flags, r.Fence)
	}
	return r, r.decodeSections(b, flags)
}

// decodeSections reads what follows the header.
func (r *Record) decodeSections(b []byte, flags uint16) error {
	c := cursor{rest: b[HeaderSize:]}
	copy(r.Owner[:], b[OwnerAt:HeaderSize])
	if r.State == redisscript.InProgress {
		copy(r.Owner[8:], c.take(OwnerRest))
	}
	if flags&flagFloor != 0 {
		r.Floor = binary.BigEndian.Uint64(c.take(8))
	}
	if flags&FlagFingerprint != 0 {
		copy(r.Fingerprint[:], c.take(len(r.Fingerprint)))
	}
	if flags&FlagOrigin != 0 {
		r.Origin = decodeOrigin(c.take(originSize))
	}
	if flags&FlagLabel != 0 {
		r.Label = string(c.take(int(c.take(1)[0])))
	}
	if flags&flagSteps != 0 {
		r.steps = bytes.Clone(c.take(int(binary.BigEndian.Uint32(c.take(4)))))
	}
	if flags&flagKept != 0 {
		r.Kept = millis48(c.take(keptSize))
	}
	if flags&flagResult != 0 {
		r.Result, c.rest = append([]byte{}, c.rest...), nil
	}
	switch {
	case c.short:
		return errTruncated
	case len(c.rest) > 0:
		return fmt.Errorf("record has %d bytes too many", len(c.rest))
	case r.Floor > redisscript.MaxFence:
		return fmt.Errorf("record has floor %d", r.Floor)
	}
	return nil
}

// cursor takes bytes from the front, and remembers whether there were too few.
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

// EncodeRecord writes a record: the twin of encode in record.lua.
func EncodeRecord(r *Record) string { return string(AppendRecord(nil, r)) }

// AppendRecord appends a record. It allocates nothing itself: claims and plain completions write
// the values of a batch into one buffer with it.
func AppendRecord(b []byte, r *Record) []byte {
	begin := len(b)
	b = append(b, RecordVersion, r.State, 0, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, r.Fence)
	b = binary.BigEndian.AppendUint32(b, r.Attempt)
	b = appendMillis48(b, r.Span)
	if b = append(b, r.Owner[:8]...); r.State == redisscript.InProgress {
		b = append(b, r.Owner[8:]...)
	}
	flags := r.flags()
	if r.Floor > 0 {
		b = binary.BigEndian.AppendUint64(b, r.Floor)
	}
	if flags&FlagFingerprint != 0 {
		b = append(b, r.Fingerprint[:]...)
	}
	if flags&FlagOrigin != 0 {
		b = appendOrigin(b, r.Origin)
	}
	if r.Label != "" {
		b = append(append(b, byte(len(r.Label))), r.Label...)
	}
	if len(r.steps) > 0 {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(r.steps))), r.steps...)
	}
	if r.Kept > 0 {
		b = appendMillis48(b, r.Kept)
	}
	b = append(b, r.Result...)
	binary.BigEndian.PutUint16(b[begin+2:], flags)
	binary.BigEndian.PutUint32(b[begin+4:], uint32(len(b)-begin))
	return b
}

// FirstHalf is what is kept of a token when its attempt has ended.
func FirstHalf(t driver.Token) (half [16]byte) {
	copy(half[:8], t[:8])
	return half
}

// Half returns the first half of the owner's token, which an end keeps.
func (r *Record) Half() [8]byte { return [8]byte(r.Owner[:8]) }

// flags announce which sections follow.
func (r *Record) flags() uint16 {
	flags := Flagged(r.NoResult, flagNoResult) | Flagged(r.danger, flagIrreversible) |
		Flagged(r.Late, flagLate) | Flagged(r.forgotten, flagForgotten) |
		Flagged(r.Plain, flagPlain)
	return flags |
		Flagged(r.Floor > 0, flagFloor) |
		Flagged(r.Fingerprint != driver.Fingerprint{}, FlagFingerprint) |
		Flagged(r.Origin != driver.Origin{}, FlagOrigin) |
		Flagged(r.Label != "", FlagLabel) |
		Flagged(len(r.steps) > 0, flagSteps) |
		Flagged(r.Kept > 0, flagKept) |
		Flagged(r.Result != nil, flagResult)
}

// Flagged returns flag if yes, and otherwise 0.
func Flagged(present bool, flag uint16) uint16 {
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

// EncodeOrigin writes the section of an origin, empty for the zero Origin.
func EncodeOrigin(o driver.Origin) string {
	if o == (driver.Origin{}) {
		return ""
	}
	return string(appendOrigin(nil, o))
}

func appendOrigin(b []byte, o driver.Origin) []byte {
	b = binary.BigEndian.AppendUint64(b, o.Digest())
	b = binary.BigEndian.AppendUint32(b, uint32(o.Partition))
	b = binary.BigEndian.AppendUint64(b, uint64(o.Offset))
	return binary.BigEndian.AppendUint32(b, uint32(o.Generation))
}

func decodeOrigin(b []byte) driver.Origin {
	return driver.Origin{
		SourceDigest: binary.BigEndian.Uint64(b),
		Partition:    int32(binary.BigEndian.Uint32(b[8:])),
		Offset:       int64(binary.BigEndian.Uint64(b[12:])),
		Generation:   int32(binary.BigEndian.Uint32(b[20:])),
	}
}

// aheadLimit is how far ahead of our clock the server's clock may have been when an end was
// written.
const aheadLimit = 2 * time.Second

// Remembered returns how long ago an end was written, and how much longer it is kept, if that is
// known without asking the server.
func (r *Record) Remembered(at Reading) (left, age time.Duration, known bool) {
	if r.State != redisscript.Succeeded && r.State != redisscript.Failed || r.Kept == 0 ||
		!at.Known() {
		return 0, 0, false
	}
	age = redisscript.FromMillis(at.Millis() - int64(r.Span))
	if age < -aheadLimit {
		return 0, 0, false
	}
	age = max(age, 0)
	left = redisscript.FromMillis(int64(r.Kept)) - age - at.Error
	return left, age, left > 0
}

// Listed returns the record as List shows it; it expires after ttl.
func (r *Record) Listed(ttl time.Duration, clock Reading) driver.Record {
	left, age := ttl, time.Duration(0)
	switch r.State {
	case redisscript.InProgress:
		left -= redisscript.FromMillis(int64(r.Span))
	case redisscript.Succeeded, redisscript.Failed:
		if clock.Known() {
			age = max(redisscript.FromMillis(clock.Millis()-int64(r.Span)), 0)
		}
	}
	rec := r.View(left, age)
	rec.Result = nil
	return rec
}
