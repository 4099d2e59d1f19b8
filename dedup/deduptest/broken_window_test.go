package deduptest

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// refuseWindows bends a store so that it has a window of an hour for all keys.
func refuseWindows(b *broken, claims, ends bool) {
	refused := driver.Answer{Err: &dedup.InputError{Field: "Window", Reason: "is another"}}
	b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
		if claims && len(reqs) == 1 && reqs[0].Window != 0 && reqs[0].Window != long {
			return []driver.Answer{refused}
		}
		return b.Store.Claim(ctx, reqs)
	}
	b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
		if ends && len(changes) == 1 && changes[0].Window != long {
			return []driver.Answer{refused}
		}
		return b.Store.Finish(ctx, changes)
	}
}

var windowMutants = []mutant{
	{"a window for all keys that it does not have", func(b *broken) {
		b.window = time.Hour
	}, []string{"window/told"}},
	{"claims refused for their window", func(b *broken) {
		refuseWindows(b, true, false)
	}, []string{"window/told"}},
}

// TestBrokenWindows: a store with one window for all keys passes only if it reports that window,
// and refuses any other window before the effect.
func TestBrokenWindows(t *testing.T) {
	for name, row := range map[string]struct {
		window       time.Duration
		claims, ends bool
		passes       bool
	}{
		"right":                  {time.Hour, true, true, true},
		"not told":               {0, true, true, false},
		"another one is told":    {2 * time.Hour, true, true, false},
		"claims are not refused": {time.Hour, false, true, false},
		"ends are not refused":   {time.Hour, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := recordSuite(t, Harness{OneWindow: true, New: func(testing.TB) dedup.Store {
					b := &broken{Store: dedup.Memory(1 << 16), window: row.window}
					refuseWindows(b, row.claims, row.ends)
					return b
				}}, judges([]string{"window/told"})...)
				assert.Equal(t, row.passes, said["window/told"] == "", "red: %v",
					slices.Sorted(maps.Keys(said)))
			})
		})
	}
}
