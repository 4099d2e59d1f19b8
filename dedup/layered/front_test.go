package layered_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
)

// memory is a filter that knows the ids that were added to it, and says that it lags by lag.
type memory struct {
	mu    sync.Mutex
	ids   map[[16]byte]bool
	lag   time.Duration
	wrong int
}

func told(ids ...driver.ID) *memory {
	m := &memory{ids: map[[16]byte]bool{}}
	for _, id := range ids {
		m.Add(id)
	}
	return m
}

func (m *memory) Add(id [16]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ids[id] = true
}

func (m *memory) has(id [16]byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ids[id]
}

func (m *memory) Absent(id [16]byte, before time.Duration) (bool, string) {
	switch {
	case before < m.lag:
		return false, "expired"
	case m.has(id):
		return false, "maybe"
	}
	return true, ""
}

func (m *memory) Wrong(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrong += n
}

// watched is a store that records its calls, and fails if the filter was not told before a write.
type watched struct {
	dedup.Store
	t      testing.TB
	filter *memory
	calls  []string
	claims []driver.ClaimRequest
	looked []driver.ID
}

func watch(t testing.TB, filter *memory) *watched {
	return &watched{Store: dedup.Memory(1000), t: t, filter: filter}
}

// wantTold makes the filter forget id, so that the next write has to add it again.
func (w *watched) wantTold(id driver.ID, call string) {
	assert.True(w.t, w.filter.has(id), call+" was sent before the filter was told")
	w.calls = append(w.calls, call)
	w.filter.mu.Lock()
	defer w.filter.mu.Unlock()
	delete(w.filter.ids, id)
}

func (w *watched) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	for _, id := range slices.CompactFunc(ids(reqs), func(a, b driver.ID) bool { return a == b }) {
		w.wantTold(id, "Claim")
	}
	w.claims = append(w.claims, reqs...)
	return w.Store.Claim(ctx, reqs)
}

func ids(reqs []driver.ClaimRequest) (ids []driver.ID) {
	for i := range reqs {
		ids = append(ids, reqs[i].ID)
	}
	return ids
}

func (w *watched) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	for i := range renewals {
		w.wantTold(renewals[i].ID, "Renew")
	}
	return w.Store.Renew(ctx, renewals)
}

func (w *watched) Finish(ctx context.Context, ends []driver.Finish) []driver.Answer {
	for i := range ends {
		w.wantTold(ends[i].ID, "Finish")
	}
	return w.Store.Finish(ctx, ends)
}

func (w *watched) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	w.looked = append(w.looked, ids...)
	return w.Store.Lookup(ctx, ids)
}

func mark(t testing.TB, store dedup.Store, id driver.ID) {
	t.Helper()
	ans := store.Finish(t.Context(), []driver.Finish{{ID: id, Token: driver.Token{1},
		State: driver.StateSucceeded, EffectApplied: true, Window: time.Hour}})
	require.NoError(t, ans[0].Err)
}

func front(t testing.TB, store dedup.Store, filter layered.Filter) dedup.Store {
	t.Helper()
	f, err := layered.Front(store, filter)
	require.NoError(t, err)
	return f
}

// A store behind a filter is a Store like any other.
func TestFrontKeepsTheContract(t *testing.T) {
	deduptest.Run(t, deduptest.Harness{Lease: 20 * time.Millisecond, WalkSteps: 100,
		New: func(t testing.TB) dedup.Store { return front(t, dedup.Memory(1<<16), told()) }})
}

func TestFrontHidesNothing(t *testing.T) {
	deduptest.Wrapper(t, func(s dedup.Store) dedup.Store { return front(t, s, told()) })
}

// The front has only the optional interfaces that its store has.
func TestFrontInventsNothing(t *testing.T) {
	plain := front(t, struct{ dedup.Store }{dedup.Memory(1)}, told())
	_, pairs := plain.(driver.FinishClaimer)
	assert.False(t, pairs, "FinishClaimer")
	_, counts := plain.(driver.ForgetCounter)
	assert.False(t, counts, "ForgetCounter")
}

// A claim is marked as a likely duplicate only if the filter has its key, however far it lags.
func TestFrontOfClaims(t *testing.T) {
	old, wrong := driver.ID{1}, driver.ID{2}
	filter := told(old, wrong)
	filter.lag = time.Hour
	store := watch(t, filter)
	mark(t, store.Store, old)

	reqs := []driver.ClaimRequest{{ID: old}, {ID: wrong}, {ID: driver.ID{3}}, {ID: driver.ID{3}}}
	for i := range reqs {
		reqs[i].Token, reqs[i].Lease = driver.Token{byte(i + 1)}, time.Minute
	}
	sent := slices.Clone(reqs)
	answers := front(t, store, filter).Claim(t.Context(), reqs)
	assert.Equal(t, sent, reqs, "the caller's requests are not changed")
	var likely []bool
	var got []driver.Outcome
	for i := range answers {
		require.NoError(t, answers[i].Err)
		likely = append(likely, store.claims[i].LikelyDuplicate)
		got = append(got, answers[i].Outcome)
	}
	assert.Equal(t, []bool{true, true, false, false}, likely)
	assert.Equal(t,
		[]driver.Outcome{dedup.Duplicate, dedup.Acquired, dedup.Acquired, dedup.InFlight}, got)
	assert.Equal(t, 1, filter.wrong, "false positives")
}

// Only a filter without a lag answers instead of the store.
func TestFrontOfLookups(t *testing.T) {
	old, wrong := driver.ID{1}, driver.ID{2}
	filter := told(old, wrong)
	store := watch(t, filter)
	mark(t, store.Store, old)
	ids := []driver.ID{{3}, old, wrong, {4}}
	want := []driver.State{driver.StateAbsent, driver.StateSucceeded, driver.StateAbsent,
		driver.StateAbsent}
	for lag, looked := range map[time.Duration][]driver.ID{0: {old, wrong}, 1: ids} {
		filter.lag, store.looked = lag, nil
		var got []driver.State
		for _, ans := range front(t, store, filter).Lookup(t.Context(), ids) {
			require.NoError(t, ans.Err)
			got = append(got, ans.Record.State)
		}
		assert.Equal(t, want, got)
		assert.Equal(t, looked, store.looked, "asked with a lag of %v", lag)
	}
	assert.Equal(t, 1, filter.wrong, "false positives")
}

// The front adds each key to the filter before it sends the write.
func TestFrontTellsTheFilter(t *testing.T) {
	filter := told()
	store := watch(t, filter)
	f, id, token := front(t, store, filter), driver.ID{1}, driver.Token{1}
	claim := driver.ClaimRequest{ID: id, Token: token, Lease: time.Minute}
	fence := f.Claim(t.Context(), []driver.ClaimRequest{claim})[0].Record.Fence
	f.Renew(t.Context(), []driver.Renewal{{ID: id, Token: token, Fence: fence, Lease: time.Minute}})
	f.Finish(t.Context(), []driver.Finish{{ID: id, Token: token, Fence: fence,
		State: driver.StateSucceeded, Window: time.Hour}})
	mark(t, f, driver.ID{2})
	assert.Equal(t, []string{"Claim", "Renew", "Finish", "Finish"}, store.calls)
}

// bloom's Filter answers for the store in the one process that writes, and for no other.
func TestFrontOfSeen(t *testing.T) {
	for name, tt := range map[string]struct {
		feed  func(t *testing.T, f *bloom.Filter)
		asked int
	}{
		"one writer": {func(t *testing.T, f *bloom.Filter) {
			feed, err := f.Rebuild(t.Context(), bloom.Source{Name: "s"},
				func(context.Context, func(int64, [16]byte) error) error { return nil }, nil)
			require.NoError(t, err)
			require.NoError(t, feed.Open(time.Now().Add(time.Hour)))
		}, 0},
		"many writers": {func(t *testing.T, f *bloom.Filter) {
			require.NoError(t, f.Begin(bloom.Source{Name: "s"}).Through(time.Now()))
		}, 1},
		"nobody feeds it": {func(*testing.T, *bloom.Filter) {}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			filter, err := bloom.New(bloom.Options{Window: 2 * time.Hour, Rate: 10})
			require.NoError(t, err)
			tt.feed(t, filter)
			store := &lookups{Store: dedup.Memory(1000)}
			d, err := dedup.New(front(t, store, filter),
				dedup.Config{Namespace: "n", Window: time.Hour, LeaseTTL: time.Minute})
			require.NoError(t, err)
			defer d.Close(context.Background()) //nolint:errcheck // of the test's own
			seen, err := d.Seen(t.Context(), "k")
			require.NoError(t, err)
			assert.False(t, seen)
			assert.Equal(t, tt.asked, store.n)
			_, err = d.Mark(t.Context(), "k")
			require.NoError(t, err)
			seen, err = d.Seen(t.Context(), "k")
			require.NoError(t, err)
			assert.True(t, seen)
		})
	}
}

type lookups struct {
	dedup.Store
	n int
}

func (l *lookups) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	l.n += len(ids)
	return l.Store.Lookup(ctx, ids)
}

func TestFrontRefusesNil(t *testing.T) {
	var none *memory
	for field, call := range map[string]func() (dedup.Store, error){
		"store":  func() (dedup.Store, error) { return layered.Front(nil, told()) },
		"filter": func() (dedup.Store, error) { return layered.Front(dedup.Memory(1), none) },
	} {
		_, err := call()
		var input *dedup.InputError
		require.ErrorAs(t, err, &input)
		assert.Equal(t, field, input.Field)
	}
}
