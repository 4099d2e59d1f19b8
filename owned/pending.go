package owned

import (
	"context"
	"errors"
)

// What ownload provides; each body moves into its own file, and this one goes.

func (s *Store) agree(ctx context.Context) error { return ctx.Err() }

func (s *Store) mapped(ctx context.Context, _ Partition) (uint64, error) { return 0, ctx.Err() }

func (s *Store) everywhere(context.Context) ([]spot, error) { return nil, errors.ErrUnsupported }

func (o *Ownership) load(context.Context) error { return errors.ErrUnsupported }

func (o *Ownership) fold(context.Context) error { return errors.ErrUnsupported }

func (o *Ownership) save(context.Context) error { return errors.ErrUnsupported }

func (o *Ownership) elsewhere(_ context.Context, members []int64) ([]elsewhere, error) {
	return make([]elsewhere, len(members)), errors.ErrUnsupported
}
