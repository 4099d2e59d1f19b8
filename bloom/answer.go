package bloom

// Answer is what the filter says of an id.
type Answer uint8

// The answers. None of them means duplicate. The third is called ProvenNew because New makes a
// filter; as text it is "new".
const (
	Unknown Answer = iota // the filter cannot say, and Reason says why: do as without a filter
	Maybe                 // the id may have been marked: ask the store
	// no mark that the filter must be fed has the id; see the package comment
	ProvenNew
)

// String returns the answer in lower case, as metrics name it.
func (a Answer) String() string {
	switch a {
	case Maybe:
		return "maybe"
	case ProvenNew:
		return "new"
	default:
		return "unknown"
	}
}

// Reason says why an answer is Unknown. It is None for the other answers.
type Reason uint8

// The reasons.
const (
	None       Reason = iota
	Loading           // a Feed was begun and has not been opened yet
	NotCovered        // no Feed, or a generation within the window has marks that were not fed
	Expired           // the time given to Feed.Open or Feed.Through is over
	// the feed reported that it may have missed marks, or that it may feed no longer
	Lost
	Shared    // others write marks that this filter is not fed
	Saturated // the bits are set, but so are most others: that says nothing
	OtherKey  // the snapshot that was to be loaded was made under another secret

	reasons = iota
)

var reasonNames = [reasons]string{"", "loading", "not_covered", "expired", "lost", "shared",
	"saturated", "other_key"}

// String returns the reason as metrics name it, and "" for None.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "invalid"
}
