// Package ctxend says what the end of a context was.
package ctxend

import (
	"context"
	"errors"
	"fmt"
)

// Error is the error of a ctx that has ended: what ctx.Err says, for those who test for
// it, and the cause if it has one of its own.
func Error(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Is reports whether err comes from a context that ended.
func Is(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
