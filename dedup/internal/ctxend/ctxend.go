// Package ctxend says how a context ended.
package ctxend

import (
	"context"
	"errors"
	"fmt"
)

// Error returns the error of a ctx that has ended. It wraps ctx.Err, which callers may test for,
// and the cause if that is another error.
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
