package driver

import "errors"

// Errors of a store. Package dedup returns them too.
var (
	// ErrInFlight: another owner holds the claim. Not done: never acknowledge on it.
	ErrInFlight = errors.New("dedup: in flight elsewhere")
	// ErrStoreFull: the store refuses new claims for lack of room.
	ErrStoreFull = errors.New("dedup: store is full")
	// ErrUnreadable: the store holds a value under the key that this version cannot
	// read: foreign, of the wrong type, corrupt, or written by a newer version. It is
	// neither "absent" nor "done".
	ErrUnreadable = errors.New("dedup: unreadable record")
)

// InputError says what is wrong with a configuration or a call. It is returned before
// any side effect. The text names the field and the problem, never a key.
type InputError struct {
	// Field names what is wrong, as it is spelled in Config or in the call. The name of a field of
	// another package's configuration includes that package, as in "kafkaadapter.Config.Handler".
	Field  string
	Reason string // Reason continues the sentence that begins with Field.
}

// Error implements error.
func (e *InputError) Error() string { return "dedup: " + e.Field + " " + e.Reason }
