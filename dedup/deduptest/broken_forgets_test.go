package deduptest

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// bendForgets bends the number of Forgets that a right store reports.
func bendForgets(b *broken, bend func(uint64) uint64) {
	b.told = func(ctx context.Context) (uint64, error) {
		n, err := b.Store.(driver.ForgetCounter).Forgets(ctx)
		return bend(n), err
	}
}

var forgetsMutants = []mutant{
	{"tells of nothing", func(b *broken) {
		bendForgets(b, func(uint64) uint64 { return 1 })
	}, []string{"forget/told"}},

	{"tells of every other Forget", func(b *broken) {
		bendForgets(b, func(n uint64) uint64 { return n / 2 })
	}, []string{"forget/told"}},

	{"the number comes back", func(b *broken) {
		bendForgets(b, func(n uint64) uint64 { return n % 3 })
	}, []string{"forget/told"}},

	{"tells only of what was there", func(b *broken) {
		var n atomic.Uint64
		b.forget = func(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
			for _, id := range ids {
				if b.state(ctx, id).State != driver.StateAbsent {
					n.Add(1)
				}
			}
			return b.Store.Forget(ctx, ids, hold)
		}
		b.told = func(context.Context) (uint64, error) { return n.Load(), nil }
	}, []string{"forget/told"}},

	{"tells those who are gone", func(b *broken) {
		b.told = func(ctx context.Context) (uint64, error) {
			return b.Store.(driver.ForgetCounter).Forgets(context.WithoutCancel(ctx))
		}
	}, []string{"forget/told"}},
}

// Two stores have the same keys. The second one may not notice the Forgets of the first.
func TestForgetsOfAnotherProcess(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			memory, opened := dedup.Memory(1<<16), 0
			h := Harness{New: func(testing.TB) dedup.Store {
				b := &broken{Store: memory}
				if opened++; opened == 2 && deaf {
					b.told = func(context.Context) (uint64, error) { return 0, nil }
				}
				return b
			}}
			said, failed := record(t, property{name: "forget/told", check: checkForgetTold},
				h.withDefaults(t))
			assert.Equal(t, deaf, failed, "deaf: %t, %d stores, said %q", deaf, opened, said)
			assert.Equal(t, 2, opened, "deaf: %t, %d stores, said %q", deaf, opened, said)
		})
	}
}
