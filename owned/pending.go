package owned

import (
	"context"
	"errors"

	"github.com/onceward/onceward/internal/redisscript"
)

// What ownload provides; each body moves into its own file, and this one goes.

func (o *Ownership) load(context.Context) error {
	oldest, _, _, _ := o.filter.Where([16]byte{})
	for g := range int64(o.s.opts.Slices + 2) {
		if err := o.feed.Load().Covered(oldest+g, 0); err != nil {
			return err
		}
	}
	o.openFeed()
	return nil
}

func (o *Ownership) fold(context.Context) error { return errors.ErrUnsupported }

func (o *Ownership) save(context.Context) error { return errors.ErrUnsupported }

func (o *Ownership) elsewhere(_ context.Context, members []int64) ([]elsewhere, error) {
	return make([]elsewhere, len(members)), errors.ErrUnsupported
}

func (s *Store) askForeign(ctx context.Context, spots []spot, members []int64) ([]elsewhere, error) {
	all := make([]elsewhere, len(members))
	for i := range spots {
		at := &spots[i]
		head, _, err := s.readPartition(ctx, &at.names)
		if err != nil {
			return nil, err
		}
		q := redisscript.OwnAsk{Epoch: head.Epoch, Foreign: true, Gen: head.Gen, Newest: head.Gens[head.Gen].Newest, IDs: members}
		for gen, sets := range head.Gens {
			for n := sets.Folded + 1; n <= sets.Newest; n++ {
				q.Fresh = append(q.Fresh, at.fresh(gen, n))
			}
		}
		r := s.send(ctx, redisscript.NewOwnAsk(redisscript.OwnKeys{Head: at.head, Own: at.own, Run: at.run}, &q))[0]
		if r.Err != nil {
			return nil, r.Err
		}
		for n, f := range r.Found {
			all[n].done = all[n].done || f.Done()
			all[n].runs += f.Runs()
			if f.Begun() && r.Live {
				all[n].live = true
			} else if f.Begun() {
				all[n].runs++
			}
		}
	}
	return all, nil
}
