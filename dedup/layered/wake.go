package layered

import (
	"context"
	"errors"

	"github.com/onceward/onceward/dedup/driver"
)

// waker forwards [driver.Waker] to the store that has the claims, of the two that are combined.
type waker struct{ of driver.Store }

// Wake implements [driver.Waker].
func (w waker) Wake(ctx context.Context, ids []driver.ID) error {
	if s, ok := w.of.(driver.Waker); ok {
		return s.Wake(ctx, ids)
	}
	return errors.ErrUnsupported
}

// Listen implements [driver.Waker].
func (w waker) Listen(ctx context.Context, id driver.ID, woken func()) (stop func(), err error) {
	if s, ok := w.of.(driver.Waker); ok {
		return s.Listen(ctx, id, woken)
	}
	return nil, errors.ErrUnsupported
}
