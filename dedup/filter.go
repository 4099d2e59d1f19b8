package dedup

import "time"

// Filter remembers which keys have records, so that a store need not be asked about a key that
// certainly has none. It is never asked whether a key is a duplicate: "not absent" means that it
// does not know, and the store decides.
//
// Implementations are safe for concurrent use and answer from memory: a filter is asked once or
// twice per claim. Its size and its false positives cost lookups, never correctness; a filter that
// says absent of a key that has a record runs its effect again.
//
// A filter may have more methods. Wrong(n int) is told of n keys for which its reason was "maybe",
// and of which the store knew nothing. OnState(func(fill, estimated, observed float64, reason
// string)) sets what is called when its state has changed, and State() returns the same four,
// now; see Observer.FilterState. Where several Dedupers share a filter, the newest one's
// Observer is told of changes.
type Filter interface {
	// Absent reports whether id is certainly in no record that a store was sent more than
	// before ago; else why it cannot say so: "maybe" when it may have been told of id, or
	// another word for what it lacks. A filter that reads a store sees what was committed when
	// it looked, so it allows for the time between: the longest that a commit may hang.
	Absent(id [16]byte, before time.Duration) (absent bool, reason string)
}
