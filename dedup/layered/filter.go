package layered

import "time"

// Filter remembers which keys have records, so that a store need not be asked about a key that
// certainly has none. It is never asked whether a key is a duplicate: "not absent" means that it
// does not know, and the store decides.
//
// Implementations are safe for concurrent use and answer from memory: a filter is asked once or
// twice per claim. Its size and its false positives cost lookups, never correctness; but a filter
// that reports a key with a record as absent makes the key's effect run again.
//
// A filter may have more methods. [Front] calls Add(id [16]byte). Wrong(n int) is called after n
// keys for which its reason was "maybe" turned out to be unknown to the store. The method
//
//	OnState(func(fill, estimated, observed float64, reason string))
//
// sets the function that is called when the state of the filter has changed. State() returns the
// same four values, now; see Observer.FilterState. Where several Dedupers share a filter, the
// Observer of the newest one gets the changes.
type Filter interface {
	// Absent reports whether it is certain that no record of id was sent to the store longer ago
	// than the duration before. If it is not, reason says why: "maybe" when id may have been added,
	// or another word for what the filter lacks. A filter that reads a store sees the records that
	// were committed when it looked, so it has to allow for the longest time that a commit may
	// hang.
	Absent(id [16]byte, before time.Duration) (absent bool, reason string)
}
