package owned

import (
	"context"
	"errors"
)

// What ownload provides; each body moves into its own file, and this one goes.

func (o *Ownership) load(context.Context) error { return errors.ErrUnsupported }

func (o *Ownership) fold(context.Context) error { return errors.ErrUnsupported }

func (o *Ownership) save(context.Context) error { return errors.ErrUnsupported }

func (o *Ownership) elsewhere(_ context.Context, members []int64) ([]elsewhere, error) {
	return make([]elsewhere, len(members)), errors.ErrUnsupported
}
