package bloom

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Defaults of Options.
const (
	DefaultSlices         = 4
	DefaultFalsePositives = 1e-3
)

// MaxSlices bounds Options.Slices: the generations of a filter fit the bits of one word.
const MaxSlices = 32

// secretBytes is the length of a key of SipHash.
const secretBytes = 16

// Options says what a Filter remembers, how well, and in how much memory.
type Options struct {
	// Window is how long an id is remembered at least. Required; at least Slices nanoseconds.
	Window time.Duration
	// Slices is the number of generations that the window is cut into, 1 to MaxSlices: more of them
	// forget sooner after the window and cost more work in a Check. Default DefaultSlices.
	Slices int
	// Rate is the number of new ids per second, as a mean over the busiest slice. Required.
	Rate float64
	// FalsePositives is the goal for how often one Check says Maybe of an id that was never added,
	// over all generations: 1e-6 to 0.1. Default DefaultFalsePositives.
	FalsePositives float64
	// Kind is how ids are kept. Default Blocked.
	Kind Kind
	// MaxBytes bounds the memory of all bits, growth included. New returns an error for a plan
	// above it. Default twice Plan.Bytes.
	MaxBytes int64
	// Secret is the 16 bytes that key the hash, and KeyID, of at most 255 bytes, names them in
	// snapshots. An attacker who knows the secret can craft ids that make another id Maybe.
	// Default: random, and then nothing can be saved.
	Secret []byte
	KeyID  string
	// Clock returns a time that has certainly passed, counted from any origin: it may be up to one
	// slice late, and is never ahead. A value below an earlier one changes nothing. It is called by
	// Check and Add, from many goroutines. Snapshots need a clock that saver and loader share: the
	// store's time as this process last heard it. Default: monotonic time since New.
	Clock func() time.Duration
	// OnEvent is called with each change, on the goroutine that made it and outside of every lock:
	// it may call the filter. Default: nil, and nothing is called.
	OnEvent func(Event)
}

// Kind is a layout of bits.
type Kind uint8

// The kinds. Both kinds prove the same, but a filter of one kind refuses a snapshot of the other.
const (
	// Blocked keeps the eight bits of an id in one cache line and takes no lock.
	Blocked Kind = iota
	// Classic keeps them anywhere, in a filter of github.com/bits-and-blooms/bloom behind a lock
	// for each generation. It is smaller, but several times slower, also with WhereAll: see the
	// figures in docs/reference/bloom.md.
	Classic
)

// String returns the kind in lower case.
func (k Kind) String() string {
	switch k {
	case Blocked:
		return "blocked"
	case Classic:
		return "classic"
	default:
		return "invalid"
	}
}

// Plan is what a filter of some Options will be: see Options.Plan.
type Plan struct {
	SliceKeys      uint64  // ids that one generation is sized for
	Bytes          uint64  // of all generations together, before any growth
	Bits           uint64  // m: of one generation
	Hashes         int     // k: bits that an id sets in it
	Generations    int     // alive at a time: Slices, the newest, and one more for a late Clock
	BitsPerKey     float64 // of a generation: Bits / SliceKeys
	FalsePositives float64 // expected of one Check over all generations, full as planned
}

// withDefaults fills in what has a default and checks the rest.
func (o Options) withDefaults() (Options, error) {
	if o.Slices == 0 {
		o.Slices = DefaultSlices
	}
	if o.FalsePositives == 0 {
		o.FalsePositives = DefaultFalsePositives
	}
	switch {
	case o.Slices < 1 || o.Slices > MaxSlices:
		return o, fmt.Errorf("bloom: Options.Slices is %d: 1 to %d", o.Slices, MaxSlices)
	case o.Window <= 0:
		return o, errors.New("bloom: Options.Window is required")
	case o.Window < time.Duration(o.Slices):
		return o, fmt.Errorf("bloom: Options.Window is %v: too short for %d slices",
			o.Window, o.Slices)
	case o.Window > math.MaxInt64/8:
		return o, fmt.Errorf("bloom: Options.Window is %v: too long", o.Window)
	case !(o.Rate > 0) || math.IsInf(o.Rate, 0):
		return o, fmt.Errorf("bloom: Options.Rate is %v: the keys a second are required", o.Rate)
	case !(o.FalsePositives >= 1e-6 && o.FalsePositives <= 0.1):
		return o, fmt.Errorf("bloom: Options.FalsePositives is %v: 1e-6 to 0.1", o.FalsePositives)
	case o.Kind > Classic:
		return o, fmt.Errorf("bloom: Options.Kind is %d: Blocked or Classic", o.Kind)
	case o.MaxBytes < 0:
		return o, fmt.Errorf("bloom: Options.MaxBytes is %d: negative", o.MaxBytes)
	case o.Secret != nil && len(o.Secret) != secretBytes:
		return o, fmt.Errorf("bloom: Options.Secret has %d bytes: %d, or nil for a random one",
			len(o.Secret), secretBytes)
	case o.Secret == nil && o.KeyID != "":
		return o, errors.New("bloom: Options.KeyID names a Secret, and there is none")
	case len(o.KeyID) > math.MaxUint8:
		return o, fmt.Errorf("bloom: Options.KeyID has %d bytes: at most %d", len(o.KeyID),
			math.MaxUint8)
	}
	return o, nil
}

// slice returns the length of a generation, rounded up so that Slices of them are a window.
func (o Options) slice() time.Duration {
	return (o.Window + time.Duration(o.Slices) - 1) / time.Duration(o.Slices)
}
