package driver

import (
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup/internal/keytext"
	"github.com/onceward/onceward/dedup/internal/stepcode"
)

// Check returns an [*InputError] for what no store accepts. Stores call it before they write.
func (r *ClaimRequest) Check() error {
	if err := checkTimes(r.Lease, r.Hold); err != nil {
		return err
	}
	return checkLabel(r.Label)
}

// Check returns an [*InputError] for what no store accepts. Stores call it before they write.
func (r *Renewal) Check() error {
	if len(r.Steps) > stepcode.MaxBytes {
		return &InputError{Field: "Steps", Reason: fmt.Sprintf("has %d bytes; at most %d are allowed",
			len(r.Steps), stepcode.MaxBytes)}
	}
	return checkTimes(r.Lease, r.Hold)
}

// Check returns an [*InputError] for what no store accepts. Stores call it before they write. It
// does not look at With, which only the store knows.
func (f *Finish) Check() error {
	switch f.State {
	case StateSucceeded, StateFailed:
		if f.Window <= 0 {
			return &InputError{Field: "Window", Reason: "is not positive"}
		}
	case StateReleased:
		if f.Hold < 0 {
			return &InputError{Field: "Hold", Reason: "is negative"}
		}
	default:
		return &InputError{Field: "State",
			Reason: "is " + f.State.String() + ", which does not end an attempt"}
	}
	switch {
	case f.EffectApplied && f.State != StateSucceeded:
		return &InputError{Field: "EffectApplied", Reason: "needs StateSucceeded"}
	case f.NotAttempted && f.State != StateReleased:
		return &InputError{Field: "NotAttempted", Reason: "needs StateReleased"}
	case f.NotAttempted && f.NotStarted:
		return &InputError{Field: "NotAttempted", Reason: "is set, and so is NotStarted"}
	}
	return checkLabel(f.Label)
}

func checkTimes(lease, hold time.Duration) error {
	switch {
	case lease <= 0:
		return &InputError{Field: "Lease", Reason: "is not positive"}
	case hold < 0:
		return &InputError{Field: "Hold", Reason: "is negative"}
	}
	return nil
}

func checkLabel(label string) error {
	if len(label) > keytext.MaxLabel {
		return &InputError{Field: "Label", Reason: fmt.Sprintf("has %d bytes; at most %d are allowed",
			len(label), keytext.MaxLabel)}
	}
	return nil
}
