package dedup_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
)

const (
	hot       = time.Hour
	hotLease  = time.Minute
	hotMargin = hot/100 + 2*time.Millisecond
)

// exact is a filter that knows the records that the store had lag ago.
type exact struct {
	store dedup.Store

	mu    sync.Mutex
	lag   time.Duration
	bits  map[driver.ID]bool // ids that it takes for present: false positives
	wrong int
	asked int
	state func(fill, estimated, observed float64, reason string)
}

func (e *exact) Absent(id [16]byte, before time.Duration) (bool, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	rec := e.store.Lookup(context.Background(), []driver.ID{id})[0].Record
	switch {
	case before < e.lag:
		return false, "expired"
	case e.bits[id], rec.State == driver.StateSucceeded && rec.Age >= e.lag:
		return false, "maybe"
	}
	return true, ""
}

func (e *exact) Wrong(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wrong += n
}

func (e *exact) OnState(fn func(fill, estimated, observed float64, reason string)) { e.state = fn }

func (e *exact) State() (fill, estimated, observed float64, reason string) {
	return 0.5, 0.25, 0.125, "loading"
}

func (e *exact) lags(by time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lag = by
}

// volatile are leases that can lose what they hold, and report it.
type volatile struct {
	*hooked
	mu   sync.Mutex
	lost time.Time // zero: never
}

func (v *volatile) Remembers() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost.IsZero() {
		return 1 << 62
	}
	return time.Since(v.lost)
}

// flush loses everything. Hooks may call it, too.
func (v *volatile) flush() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.inner, v.lost = dedup.Memory(10_000), time.Now()
}

// layers is a layered store under test. It needs a bubble of testing/synctest.
type layers struct {
	t       *testing.T
	leases  *volatile
	records *hooked
	filter  *exact
	told    journal
	untold  bool // leases do not report for how long they remember
	// unfiltered: without a filter, the store is always asked
	unfiltered bool
}

func newLayers(t *testing.T) *layers {
	records := hook()
	return &layers{t: t, leases: &volatile{hooked: hook()}, records: records,
		filter: &exact{store: records.inner}}
}

// deduper returns the Deduper of one process.
func (l *layers) deduper(change func(*dedup.Config)) *dedup.Deduper {
	l.t.Helper()
	return newDeduper(l.t, l.store(), func(c *dedup.Config) {
		c.Window, c.LeaseTTL, c.Observer = 1000*time.Hour, hotLease, l.told.observer()
		if change != nil {
			change(c)
		}
	})
}

// store returns the layered store of one process.
func (l *layers) store() dedup.Store {
	l.t.Helper()
	var front dedup.Store = l.leases
	if l.untold {
		front = l.leases.hooked
	}
	cfg := layered.Config{HotWindow: hot, LeaseTTL: hotLease, Filter: l.filter,
		Observer: l.told.observer()}
	if l.unfiltered {
		cfg.Filter = nil
	}
	store, err := layered.New(front, l.records, cfg)
	require.NoError(l.t, err)
	return store
}

// forgetCalls starts to count calls from zero.
func (l *layers) forgetCalls() {
	l.leases.forgetCalls()
	l.records.forgetCalls()
}

// wantCalls compares how often each store was called.
func (l *layers) wantCalls(what string, leases, records int) {
	l.t.Helper()
	a, b := l.leases.count(), l.records.count()
	assert.Equal(l.t, leases, a, what)
	assert.Equal(l.t, records, b, what)
}

// wantVerdict compares the newest event about the filter.
func (l *layers) wantVerdict(verdict, reason string, saved int, outcome driver.Outcome) {
	l.t.Helper()
	events := l.told.of("filtered")
	require.NotEmpty(l.t, events, "nothing was told of the filter")
	e := events[len(events)-1]
	assert.Equal(l.t, verdict, e.FilterAnswer)
	assert.Equal(l.t, reason, e.Reason)
	assert.Equal(l.t, saved, e.Saved)
	assert.Equal(l.t, outcome, e.Outcome)
}

// once runs the effect of key and completes it.
func (l *layers) once(d *dedup.Deduper, key string) {
	l.t.Helper()
	complete(l.t, acquire(l.t, d, key))
}

func complete(t *testing.T, c *dedup.Claim) {
	t.Helper()
	require.NoError(t, c.Complete(t.Context(), []byte("result")))
}

// crashes loses the ends that are sent to leases after the store has the record, as if the process
// had died in between.
func (l *layers) crashes(on bool) {
	l.leases.setBefore(only("Finish", func(call) error {
		if on {
			return errNet
		}
		return nil
	}))
}
