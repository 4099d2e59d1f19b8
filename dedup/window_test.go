package dedup_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
)

// fixed is a store that has one window for all keys, and a longest hold.
type fixed struct {
	dedup.Store
	window, hold time.Duration
}

func (f *fixed) Limits() driver.Limits { return driver.Limits{Window: f.window, MaxHold: f.hold} }

// TestNewRefusesTheWindowOfItsStore: if the store refused the window of each end, every delivery
// would run its effect again.
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

// TestClaimsSayWhatTheirEndNeeds: so a store behind a wrapper can refuse a claim before the effect,
// and not its end after the effect.
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

// TestAKeyCanHaveAWindowOfItsOwn: however a key ends, it is remembered for the window of its
// request, and no longer.
func TestAKeyCanHaveAWindowOfItsOwn(t *testing.T) {
	const short = time.Hour
	own := dedup.WithWindow(short)
	for name, end := range map[string]func(t *testing.T, d *dedup.Deduper){
		"Do": func(t *testing.T, d *dedup.Deduper) {
			_, err := dedup.Do(t.Context(), d, "k", returns("v"), own)
			require.NoError(t, err)
		},
		"a failure for good": func(t *testing.T, d *dedup.Deduper) {
			_, err := dedup.Do(t.Context(), d, "k", func(context.Context) (string, error) {
				return "", dedup.Permanent(errors.New("no"))
			}, own)
			require.True(t, dedup.IsPermanent(err), err)
		},
		"a claim": func(t *testing.T, d *dedup.Deduper) {
			c, err := d.Claim(t.Context(), "k", own)
			require.NoError(t, err)
			require.NoError(t, c.Complete(t.Context(), nil))
		},
		"a batch": func(t *testing.T, d *dedup.Deduper) {
			claims, err := d.ClaimBatch(t.Context(),
				[]dedup.Request{{Key: "other"}, {Key: "k", Window: short}})
			require.NoError(t, err)
			require.Nil(t, d.CompleteBatch(t.Context(),
				[]dedup.Completion{{Claim: claims[0]}, {Claim: claims[1]}}))
		},
		"Mark": func(t *testing.T, d *dedup.Deduper) {
			_, err := d.Mark(t.Context(), "k", own)
			require.NoError(t, err)
		},
		"uncertain": func(t *testing.T, d *dedup.Deduper) {
			_, err := dedup.Do(t.Context(), d, "k", func(ctx context.Context) (string, error) {
				require.NoError(t, dedup.MarkIrreversible(ctx))
				return "", errors.New("lost")
			}, own)
			require.Error(t, err)
		},
		"uncertain by a crash": func(t *testing.T, d *dedup.Deduper) {
			c, err := d.Claim(t.Context(), "k", own)
			require.NoError(t, err)
			ctx, stop := c.KeepAlive(t.Context())
			require.NoError(t, dedup.MarkIrreversible(ctx))
			time.Sleep(time.Second) // renewed
			stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDeduper(t, dedup.Memory(10), func(c *dedup.Config) {
					c.Window, c.Hold, c.LeaseTTL = day, time.Minute, time.Second
				})
				end(t, d)
				time.Sleep(short - 2*time.Second)
				rec, err := d.Lookup(t.Context(), "k")
				require.NoError(t, err)
				assert.NotEqual(t, driver.StateAbsent, rec.State, "forgotten early")
				time.Sleep(4 * time.Second)
				rec, err = d.Lookup(t.Context(), "k")
				require.NoError(t, err)
				assert.Equal(t, driver.StateAbsent, rec.State, "remembered for longer")
			})
		})
	}
}

// TestWindowsThatAreRefused: they are refused before the store is asked, and the error names the
// field.
func TestWindowsThatAreRefused(t *testing.T) {
	for name, row := range map[string]struct {
		window, one time.Duration
		says        string
	}{
		"shorter than a lease": {window: time.Second - 1,
			says: "dedup: Window is 999.999999ms, shorter than Config.LeaseTTL (1s)"},
		"negative": {window: -time.Hour,
			says: "dedup: Window is -1h0m0s, shorter than Config.LeaseTTL (1s)"},
		"longer than the Deduper's": {window: day + 1,
			says: "dedup: Window is 24h0m0.000000001s, longer than Config.Window (24h0m0s)"},
		"another than the store's": {window: time.Hour, one: day,
			says: "dedup: Window is 1h0m0s; its store has one window for all keys, 24h0m0s"},
		"a lease":          {window: time.Second},
		"the store's":      {window: day, one: day},
		"Config's, unsaid": {one: day},
	} {
		t.Run(name, func(t *testing.T) {
			store := &claimsSeen{Store: dedup.Memory(10)}
			d := newDeduper(t, &limited{store, row.one}, func(c *dedup.Config) {
				c.Window, c.LeaseTTL = day, time.Second
			})
			own := dedup.WithWindow(row.window)
			c, err := d.Claim(t.Context(), "k", own)
			_, errMark := d.Mark(t.Context(), "m", own)
			_, errSeen := d.Seen(t.Context(), "s", own)
			claims, errBatch := d.ClaimBatch(t.Context(),
				[]dedup.Request{{Key: "b", Window: row.window}})
			require.NoError(t, errBatch)
			if row.says == "" {
				require.NoError(t, err)
				assert.Equal(t, dedup.Acquired, c.Outcome)
				assert.Equal(t, dedup.Acquired, claims[0].Outcome)
				assert.NoError(t, errMark)
				assert.NoError(t, errSeen)
				return
			}
			for _, err := range []error{err, errMark, errSeen, claims[0].Err()} {
				wantInput(t, err, "Window")
				assert.ErrorContains(t, err, row.says)
			}
			assert.Empty(t, store.reqs, "the store was asked")
			assert.Empty(t, store.ends, "the store was asked")
		})
	}
}

// limited is a store that reports its window.
type limited struct {
	*claimsSeen
	window time.Duration
}

func (l *limited) Limits() driver.Limits { return driver.Limits{Window: l.window} }
