package outbox

import (
	"errors"
	"fmt"
)

// InputError says that an argument or a setting cannot be used. Nothing was sent.
type InputError struct {
	// Field of the configuration or message, or the name of the parameter, with its position where
	// there are several, such as "messages[3].Topic".
	Field string
	// Reason completes "Field ...".
	Reason string
}

// Error names the field and the reason.
func (e *InputError) Error() string { return "outbox: " + e.Field + " " + e.Reason }

func inputError(field, reason string) error { return &InputError{Field: field, Reason: reason} }

// ErrRejected is what errors.Is finds in an error of [Reject].
var ErrRejected = errors.New("outbox: rejected")

// Reject marks the error of a message that the broker refuses for what it is, such as one that is
// too large. It would be refused again, so RelayConfig.MaxAttempts limits the tries. Do not reject
// because a topic is missing or must not be written: somebody may fix that, and meanwhile all
// messages of the topic would be parked. A nil error stays nil.
func Reject(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrRejected, err)
}

var (
	// ErrUnacknowledged is the result of a message whose outcome the publisher did not report in
	// time, or at all.
	ErrUnacknowledged = errors.New("outbox: not acknowledged in time")
	// ErrOvertaken is reported when a publisher has acknowledged a message although an earlier one
	// of its topic and key had failed. The message stays in the outbox and is published again after
	// the earlier one, so a consumer that deduplicates by id has seen the two in the wrong order.
	ErrOvertaken = errors.New("outbox: acknowledged after an earlier message of its key had failed")
	// ErrHeldUp is returned by [Relay.Run] when a call of the publisher, or a statement, had not
	// ended after StopTimeout.
	ErrHeldUp = errors.New("outbox: stopped before everything in hand had ended")
)
