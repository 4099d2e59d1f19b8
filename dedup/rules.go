package dedup

import (
	"bytes"

	"github.com/onceward/onceward/dedup/driver"
)

// leaves reports whether the request leaves alone a key that it could get.
func leaves(r *driver.ClaimRequest, attempt int) bool { return r.OnlyNew && attempt > 0 }

// left reports whether the answer to a request with OnlyNew says that the request left the key
// to others.
func left(onlyNew bool, outcome driver.Outcome, rec *Record) bool {
	return onlyNew && outcome == InFlight && rec.Remaining <= 0
}

// takesOver reports whether the request gets a key that is in flight as rec says.
func takesOver(r *driver.ClaimRequest, rec *Record) bool {
	return r.TakeOverOlderGeneration && rec.State == driver.StateInProgress && !rec.Irreversible &&
		outranks(&r.Origin, &rec.Origin)
}

// cloneAnswer returns a copy of the answer for another caller, because every caller may write into
// its own answer.
func cloneAnswer(a *driver.Answer) driver.Answer {
	b := *a
	b.Record.Result, b.Record.Steps = bytes.Clone(a.Record.Result), bytes.Clone(a.Record.Steps)
	return b
}

// terminal reports whether the state is an end that is replayed.
func terminal(s driver.State) bool { return s == driver.StateSucceeded || s == driver.StateFailed }

// samePosition reports whether both origins are known and are one position.
func samePosition(o, other *driver.Origin) bool {
	return o.Digest() != 0 && o.Digest() == other.Digest() &&
		o.Partition == other.Partition && o.Offset == other.Offset
}

// outranks reports whether o and other have the same stream and partition, and o has a newer
// generation of consumers. An unknown origin outranks nothing, and nothing outranks it.
func outranks(o, other *driver.Origin) bool {
	return o.Digest() != 0 && o.Digest() == other.Digest() && o.Partition == other.Partition &&
		other.Generation > 0 && other.Generation < o.Generation
}
