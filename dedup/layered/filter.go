package layered

import "time"

// Filter remembers which keys have records, so that a store need not be asked about a key that
// certainly has none. It is never asked whether a key is a duplicate: "not absent" means that it
// does not know, and the store decides.
//
// Implementations are safe for concurrent use and answer from memory: a filter is asked once or
// twice per claim. Its size and its false positives cost lookups, never correctness; a filter that
// says absent of a key that has a record runs its effect again.
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
	// Absent reports whether id is certainly in no record that was sent to the store longer ago
	// than the duration before. If not, reason says why: "maybe" when id may have been added,
	// or another word for what the filter lacks. A filter that reads a store sees the records
	// that were committed when it looked, so it allows for the longest that a commit may hang.
	Absent(id [16]byte, before time.Duration) (absent bool, reason string)
}
