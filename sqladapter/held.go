package sqladapter

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/onceward/onceward/dedup"
)

// heldKeys are the keys of the effects that a context belongs to.
type heldKeys struct {
	db    any
	table string
	ids   []dedup.ID
	outer *heldKeys
}

type heldKeysKey struct{}

// hold returns the context for the effect of these keys. When ctx is that of an effect of one of them
// already, in the same table of the same pool, the new transaction would wait for the outer one, which
// waits for it: no database sees that deadlock, because one half of it is in this program.
func (m *Marks) hold(ctx context.Context, db any, es ...entry) (context.Context, error) {
	outer, _ := ctx.Value(heldKeysKey{}).(*heldKeys)
	if db == nil || !reflect.TypeOf(db).Comparable() {
		return ctx, nil
	}
	for h := outer; h != nil; h = h.outer {
		if h.db != db || h.table != m.table.full {
			continue
		}
		for i := range es {
			if slices.Contains(h.ids, es[i].id) {
				return nil, fmt.Errorf("sqladapter: %w: by the effect that asks for it, inside its own transaction", dedup.ErrInFlight)
			}
		}
	}
	ids := make([]dedup.ID, len(es))
	for i := range es {
		ids[i] = es[i].id
	}
	return context.WithValue(ctx, heldKeysKey{}, &heldKeys{db: db, table: m.table.full, ids: ids, outer: outer}), nil
}
