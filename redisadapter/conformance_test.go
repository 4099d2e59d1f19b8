package redisadapter_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// TestConformance runs the suite that every Store must pass. On miniredis time is moved
// by hand, so that two commands may see the very same instant.
func TestConformance(t *testing.T) {
	t.Run("miniredis", func(t *testing.T) {
		eachLayout(t, func(t *testing.T, layout redisadapter.Layout) {
			t.Parallel()
			mini, client := redistest.Freeze(t)
			deduptest.Run(t, byHand(mini,
				harness(t, redistest.Backend{Client: client, Prefix: "ow"}, layout)))
		})
	})
	for _, name := range slices.Concat(redistest.Backends[1:], []string{"valkey"}) {
		t.Run(name, func(t *testing.T) {
			eachLayout(t, func(t *testing.T, layout redisadapter.Layout) {
				t.Parallel()
				deduptest.Run(t, harness(t, redistest.Open(t, name), layout))
			})
		})
	}
	t.Run("without results", func(t *testing.T) {
		t.Parallel()
		h := harness(t, redistest.Open(t, "redis"), redisadapter.Full)
		inner := h.New
		h.New = func(t testing.TB) dedup.Store { return withoutResults{resolvable(inner(t))} }
		deduptest.Run(t, h)
	})
}

// seenOnly returns the SeenOnly that the Deduper of a store needs.
func seenOnly(store *redisadapter.Store) bool { return store.Limits().NoResults }

// byHand makes a harness move the server's time by hand. Its random walks are shorter, because they
// run one after the other, with a Lua interpreter in Go.
func byHand(mini *redistest.Frozen, h deduptest.Harness) deduptest.Harness {
	inner := h.New
	h.New = func(t testing.TB) dedup.Store {
		s := ticking{inner(t), mini}
		if _, ok := s.Store.(driver.Resolvable); ok {
			return tickingLister{s}
		}
		return s
	}
	h.Advance = mini.Advance
	h.WalkSteps = byHandSteps
	return h
}

// ticking lets a millisecond pass with every Forget. A member has no fence, so its owner's time is
// bounded by the clock, and the test needs a clock that advances.
type ticking struct {
	dedup.Store
	mini *redistest.Frozen
}

func (s ticking) Limits() driver.Limits { return driver.LimitsOf(s.Store) }

func (s ticking) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	s.mini.Advance(time.Millisecond)
	return s.Store.Forget(ctx, ids, hold)
}

// tickingLister is ticking for a store that finds its uncertain keys.
type tickingLister struct{ ticking }

func (s tickingLister) Uncertain(ctx context.Context, cursor string,
	limit int) ([]driver.UncertainRecord, string, error) {
	return resolvable(s.Store).Uncertain(ctx, cursor, limit)
}

func (s tickingLister) ClaimUncertain(ctx context.Context, req driver.ClaimRequest) driver.Answer {
	return resolvable(s.Store).ClaimUncertain(ctx, req)
}

func resolvable(s dedup.Store) driver.Resolvable {
	r, _ := s.(driver.Resolvable)
	return r
}

// withoutResults ends changes without a result by plain commands, if the layout is Full.
type withoutResults struct{ driver.Resolvable }

func (s withoutResults) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	changes = slices.Clone(changes)
	for i := range changes {
		changes[i].MayOverwrite = changes[i].Result == nil
	}
	return s.Resolvable.Finish(ctx, changes)
}

var layouts = []redisadapter.Layout{redisadapter.Full, redisadapter.Compact}

// layoutOptions returns options of a layout, with a window of an hour if it needs one.
func layoutOptions(prefix string, layout redisadapter.Layout) redisadapter.Options {
	opts := redisadapter.Options{Prefix: prefix, Layout: layout}
	if layout == redisadapter.Compact {
		opts.Secret, opts.Window, opts.ExpectedKeys = []byte("sixteen bytes or more"),
			time.Hour, 2000
	}
	return opts
}

// eachLayout runs a test for every layout.
func eachLayout(t *testing.T, run func(*testing.T, redisadapter.Layout)) {
	t.Helper()
	eachOf(t, layouts, run)
}

func eachOf(t *testing.T, layouts []redisadapter.Layout,
	run func(*testing.T, redisadapter.Layout)) {
	t.Helper()
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) { run(t, layout) })
	}
}

func harness(t *testing.T, b redistest.Backend, layout redisadapter.Layout) deduptest.Harness {
	t.Helper()
	store, err := redisadapter.New(t.Context(), b.Client, layoutOptions(b.Prefix, layout))
	require.NoError(t, err)
	h := deduptest.Harness{
		DoneOnly:   layout == redisadapter.Compact,
		WalkSteps:  walkSteps,
		New:        func(testing.TB) dedup.Store { return store },
		Unreadable: make(map[string]func(testing.TB, dedup.Store, driver.ID)),
	}
	for name, plant := range unreadable {
		h.Unreadable[name] = func(t testing.TB, _ dedup.Store, id driver.ID) {
			t.Helper()
			plant(t, b.Client, redisadapter.Key(store, id))
		}
	}
	return h
}

func openWith(t testing.TB, b redistest.Backend, opts redisadapter.Options) *redisadapter.Store {
	t.Helper()
	store, err := redisadapter.New(t.Context(), b.Client, opts)
	must(t, err)
	return store
}

func open(t testing.TB, b redistest.Backend) *redisadapter.Store {
	t.Helper()
	store, err := redisadapter.New(t.Context(), b.Client, redisadapter.Options{Prefix: b.Prefix})
	require.NoError(t, err)
	return store
}

// plant puts something under a key.
type plant func(t testing.TB, client redis.UniversalClient, key string)
