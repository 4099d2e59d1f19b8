package dedup_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
)

// steady are leases that never lose anything.
type steady struct{ dedup.Store }

func (steady) Remembers() time.Duration { return math.MaxInt64 }

func (s steady) Forgets(ctx context.Context) (uint64, error) {
	return s.Store.(driver.ForgetCounter).Forgets(ctx)
}

// The composition is a Store like any other, and passes the same suite, with a filter that lets it
// skip whatever it may skip.
func TestLayeredKeepsTheContract(t *testing.T) {
	const lease = 20 * time.Millisecond
	deduptest.Run(t, deduptest.Harness{Lease: lease, WalkSteps: 100,
		New: func(t testing.TB) dedup.Store {
			records := dedup.Memory(1 << 16)
			store, err := layered.New(steady{dedup.Memory(1 << 16)}, records,
				layered.Config{HotWindow: time.Hour, LeaseTTL: lease,
					Filter: &exact{store: records}})
			require.NoError(t, err)
			return store
		}})
}
