package wire

import (
	"context"
	"errors"
	"fmt"
)

// Within runs f and returns its error, or the error of ctx if that ends first; f is then left
// behind.
func Within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return Cause(ctx)
	}
}

// Cause returns the error of a context that has ended, and its cause.
func Cause(ctx context.Context) error {
	err, why := ctx.Err(), context.Cause(ctx)
	if errors.Is(why, err) {
		return why
	}
	return fmt.Errorf("%w: %w", err, why)
}
