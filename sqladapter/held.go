package sqladapter

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// held has the keys, or the positions of a fence, whose effects run under a context.
type held[K comparable] struct {
	db    any
	table string
	ids   []K
	outer *held[K]
}

type heldKey[K comparable] struct{}

// hold returns the context for the effect of these keys. It refuses when ctx already belongs to an
// effect of one of them, in the same table of the same pool: the new transaction would wait for the
// outer one, which waits for it. No database sees that deadlock, because one half of it is in this
// program.
func hold[K comparable](ctx context.Context, db any, table string,
	ids ...K) (context.Context, error) {
	outer, _ := ctx.Value(heldKey[K]{}).(*held[K])
	if db == nil || !reflect.TypeOf(db).Comparable() {
		return ctx, nil
	}
	for h := outer; h != nil; h = h.outer {
		if h.db != db || h.table != table {
			continue
		}
		for _, id := range ids {
			if slices.Contains(h.ids, id) {
				return nil, fmt.Errorf(
					"sqladapter: %w: by the effect that asks for it, inside its own transaction",
					dedup.ErrInFlight)
			}
		}
	}
	return context.WithValue(ctx, heldKey[K]{},
		&held[K]{db: db, table: table, ids: ids, outer: outer}), nil
}

func (m *Ledger) hold(ctx context.Context, db any, es ...entry) (context.Context, error) {
	ids := make([]driver.ID, len(es))
	for i := range es {
		ids[i] = es[i].id
	}
	return hold(ctx, db, m.table.full, ids...)
}
