package bloom

import (
	"errors"
	"fmt"
	"math"
)

// A snapshot is, with numbers in little-endian order:
//
//	"OWBF", version, kind, hashes; bits of a generation's first layer (8 bytes), slice in ns (8),
//	check of the secret (8), key id (1, bytes), name of the source (2, bytes), its epoch (8), generations (1)
//	per generation: index (8), covered through (8), closed (1), layers (1), their words (8 each,
//	layer n has the bits of the first times 2^n), bits set (8), SHA-256 of the words
//	SHA-256 of all of it
const (
	snapshotMagic   = "OWBF"
	snapshotVersion = 1
)

// stored returns the kind as snapshots hold it.
func (k Kind) stored() byte { return byte(k) + 1 }

// check identifies the secret: it is the digest of a fixed text. It says nothing about the digest
// of any id, because an id has 16 bytes and the text has more.
func (k secret) check() uint64 { return k.sum([]byte("onceward bloom snapshot")).block }

// Refusal says why a snapshot was refused.
type Refusal string

// The refusals.
const (
	RefusedMagic     Refusal = "magic"     // no snapshot
	RefusedVersion   Refusal = "version"   // of another version of the format
	RefusedTruncated Refusal = "truncated" // it ends early, or could not be read
	RefusedTrailing  Refusal = "trailing"  // something comes after its end
	RefusedChecksum  Refusal = "checksum"  // it is not what was saved
	// it names another secret: answers are Unknown(OtherKey) until a feed is open
	RefusedKeyID  Refusal = "key id"
	RefusedSecret Refusal = "secret" // another secret under that name; answers are the same
	RefusedSource Refusal = "source" // of another source
	RefusedEpoch  Refusal = "epoch"  // newer than the one that is wanted
	// it has writes that the source has lost
	RefusedSequence Refusal = "sequence"
	RefusedSizes    Refusal = "sizes" // of a filter with other options, or above MaxBytes
)

// SnapshotError is a snapshot that Load refused as a whole: nothing of it is in the filter.
type SnapshotError struct {
	Reason Refusal
	Err    error // what reading it failed with, if that is why
}

// Error says why the snapshot was refused.
func (e *SnapshotError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("bloom: snapshot refused: %s: %v", e.Reason, e.Err)
	}
	return "bloom: snapshot refused: " + string(e.Reason)
}

// Unwrap returns the error of the reader.
func (e *SnapshotError) Unwrap() error { return e.Err }

// storable returns an error if indexes and digests mean nothing outside of this process.
func (f *Filter) storable() error {
	switch {
	case f.opts.KeyID == "":
		return errors.New("bloom: Options.Secret and KeyID are needed for a snapshot")
	case f.opts.Clock == nil:
		return errors.New("bloom: Options.Clock is needed for a snapshot: one that saver and loader share")
	}
	return nil
}

func (s Source) check() error {
	if len(s.Name) > math.MaxUint16 {
		return fmt.Errorf("bloom: Source.Name has %d bytes: at most %d", len(s.Name),
			math.MaxUint16)
	}
	return nil
}
