package dedup_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// Messages are redelivered to three processes for days. Processes die between the two ends, leases
// lose everything, scans lag and stop for hours, and ends come late. Every message runs exactly
// once.
func TestLayeredRunsOnce(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLayers(t)
				rng := rand.New(rand.NewPCG(seed, 6)) // a seed that can be repeated
				crowd := []*dedup.Deduper{l.deduper(nil), l.deduper(nil), l.deduper(nil)}
				ran, saved := map[string]int{}, 0
				for step := range 3000 {
					time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Minute))))
					switch rng.IntN(100) {
					case 0:
						l.leases.flush()
					case 1, 2, 3:
						l.filter.lags(time.Duration(rng.Int64N(int64(2 * hot))))
					}
					key := fmt.Sprint(rng.IntN(1 + step/2))
					l.deliver(crowd[rng.IntN(3)], key, ran, rng)
				}
				for key, n := range ran {
					assert.Equal(t, 1, n, "the effect of %s", key)
				}
				for _, e := range l.told.of("filtered") {
					saved += e.Saved
				}
				asked := l.records.count("Lookup")
				assert.GreaterOrEqual(t, len(ran), 500)
				assert.GreaterOrEqual(t, saved, 100)
				assert.GreaterOrEqual(t, asked, 100)
			})
		})
	}
}

// deliver delivers a message once. Its process may die when the store has its record.
func (l *layers) deliver(d *dedup.Deduper, key string, ran map[string]int, rng *rand.Rand) {
	l.t.Helper()
	if rng.IntN(20) == 0 {
		ran[key+" marked"] = 1
		_, err := d.Mark(l.t.Context(), key+" marked")
		require.NoError(l.t, err)
	}
	c := claim(l.t, d, key)
	if c.Outcome == dedup.InFlight { // the claim of a process that died
		time.Sleep(2 * hotLease)
		c = claim(l.t, d, key)
	}
	if c.Outcome == dedup.Duplicate {
		require.NotZero(l.t, ran[key], "%s is lost", key)
		return
	}
	require.Equal(l.t, dedup.Acquired, c.Outcome)
	ran[key]++
	if rng.IntN(4) == 0 { // an end that is late
		time.Sleep(2 * hotLease)
		if rng.IntN(2) == 0 {
			time.Sleep(2 * hot)
		}
		ended(l.t, c)
		return
	}
	if rng.IntN(10) == 0 {
		l.leases.flush() // while the effect runs
	}
	l.crashes(rng.IntN(3) == 0)
	ended(l.t, c)
	l.crashes(false)
}

// ended completes a claim that may be lost: the effect is put on record anyway.
func ended(t *testing.T, c *dedup.Claim) {
	t.Helper()
	err := c.Complete(t.Context(), nil)
	require.False(t, err != nil && !errors.Is(err, dedup.ErrLeaseLost), err)
}
