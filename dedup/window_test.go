package dedup_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
)

// fixed is a store with one window for all keys, and a longest hold, that refuses ends with
// another.
type fixed struct {
	dedup.Store
	window, hold time.Duration
}

func (f *fixed) Limits() driver.Limits { return driver.Limits{Window: f.window, MaxHold: f.hold} }

// TestNewRefusesTheWindowOfItsStore: a Deduper that was made over a store that refuses its ends
// would run every effect with every delivery.
func TestNewRefusesTheWindowOfItsStore(t *testing.T) {
	for name, row := range map[string]struct {
		store, leases *fixed
		field, says   string
	}{
		"the same":      {store: &fixed{window: day, hold: 2 * time.Hour}},
		"any":           {store: &fixed{}},
		"a longer hold": {store: &fixed{hold: 3 * time.Hour}},
		"a shorter window": {store: &fixed{window: time.Hour}, field: "Config.Window",
			says: "dedup: Config.Window is 24h0m0s; its store has one window for all keys, 1h0m0s"},
		"a longer window": {store: &fixed{window: 2 * day}, field: "Config.Window"},
		"a shorter hold": {store: &fixed{hold: time.Hour}, field: "Config.Hold",
			says: "dedup: Config.Hold is 2h0m0s; its store keeps what is unfinished for 1h0m0s at most"},
		"layers, the same": {store: &fixed{window: day}, leases: &fixed{}},
		"layers, window": {store: &fixed{window: time.Hour}, leases: &fixed{},
			field: "Config.Window"},
		"layers, hold": {store: &fixed{hold: time.Hour}, leases: &fixed{},
			field: "Config.Hold"},
		"layers, leases' hold": {store: &fixed{hold: day}, leases: &fixed{hold: time.Hour},
			field: "Config.Hold"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := dedup.Config{Namespace: "test", Window: day, Hold: 2 * time.Hour,
				LeaseTTL: time.Minute}
			row.store.Store = dedup.Memory(10)
			var store dedup.Store = row.store
			if row.leases != nil {
				row.leases.Store = dedup.Memory(10)
				var err error
				store, err = layered.New(row.leases, row.store,
					layered.Config{HotWindow: time.Hour, LeaseTTL: time.Minute})
				require.NoError(t, err)
			}
			_, err := dedup.New(store, cfg)
			if row.field == "" {
				require.NoError(t, err)
				return
			}
			wantInput(t, err, row.field)
			if row.says != "" {
				assert.EqualError(t, err, row.says)
			}
		})
	}
}

const day = 24 * time.Hour

// TestClaimsSayWhatTheirEndNeeds: so a store that a wrapper hides can refuse them, before the
// effect and not after it.
func TestClaimsSayWhatTheirEndNeeds(t *testing.T) {
	for name, seenOnly := range map[string]bool{"results": false, "seen only": true} {
		t.Run(name, func(t *testing.T) {
			store := &claimsSeen{Store: dedup.Memory(10)}
			d := newDeduper(t, store, func(c *dedup.Config) {
				c.SeenOnly, c.ResultLimit, c.Window = seenOnly, 1000, day
			})
			_, err := do(t, d, "k", returns("v"))
			require.NoError(t, err)
			_, err = d.ClaimBatch(t.Context(), []dedup.Request{{Key: "a"}, {Key: "b"}})
			require.NoError(t, err)
			_, err = d.Mark(t.Context(), "m")
			require.NoError(t, err)
			require.Len(t, store.ends, 2)
			assert.Equal(t, seenOnly, store.ends[0].MayOverwrite)
			assert.False(t, store.ends[1].MayOverwrite, "a mark has no claim")
			require.Len(t, store.reqs, 3)
			for _, req := range store.reqs {
				assert.Equal(t, day, req.Window)
				assert.Equal(t, seenOnly, req.NoResult)
				assert.Equal(t, map[bool]int{false: 1000, true: 0}[seenOnly], req.ResultLimit)
			}
		})
	}
}

type claimsSeen struct {
	dedup.Store
	reqs []driver.ClaimRequest
	ends []driver.Finish
}

func (a *claimsSeen) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	a.ends = append(a.ends, changes...)
	return a.Store.Finish(ctx, changes)
}

func (a *claimsSeen) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	a.reqs = append(a.reqs, reqs...)
	return a.Store.Claim(ctx, reqs)
}
