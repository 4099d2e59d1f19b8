package lease

import (
	"errors"
	"fmt"
	"time"
)

// Errors to test for with errors.Is.
var (
	// ErrHeld: somebody else holds the lease; the error is a [*HeldError].
	ErrHeld = errors.New("lease: held by another owner")
	// ErrLost: the lease is no longer this owner's. It is the cancellation cause of the
	// context of [Lease.KeepAlive], and the answer of Renew and Release.
	ErrLost = errors.New("lease: lost")
)

// HeldError is what Acquire returns when somebody else holds the lease.
type HeldError struct {
	// Remaining is how long that lease lasts from now unless it is renewed or released,
	// by the server's clock.
	Remaining time.Duration
}

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("lease: held by another owner for another %v", e.Remaining)
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// InputError says what is wrong with an option or an argument. It is returned before
// anything is sent. The text never contains a key.
type InputError struct {
	// Field names what is wrong, as it is spelled in Options or in the call.
	Field string
	// Reason continues the sentence that begins with Field.
	Reason string
}

// Error implements error.
func (e *InputError) Error() string { return "lease: " + e.Field + " " + e.Reason }
