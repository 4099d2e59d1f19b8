package layered_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

const (
	window  = time.Hour
	hot     = 5 * time.Second
	lease   = 500 * time.Millisecond
	every   = 100 * time.Millisecond // the time between two scans
	overlap = 500 * time.Millisecond // the time that a commit may take
)

var errCrash = errors.New("the process has died")

// dying is a store of leases that sometimes does not get a completion that the other store has, as
// if the process had died in between. Other processes then do the rest of its work.
type dying struct{ *redisadapter.Store }

func (d dying) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	if changes[0].EffectApplied && rand.IntN(8) == 0 {
		answers := make([]driver.Answer, len(changes))
		for i := range answers {
			answers[i].Err = errCrash
		}
		return answers
	}
	return d.Store.Finish(ctx, changes)
}

// process is one of several processes: everything but the servers.
type process struct {
	d *dedup.Deduper
	// how often the filter gave each reason, or each verdict without a reason
	verdicts sync.Map
	saved    atomic.Int64
}

func (p *process) count(what string) int64 {
	n, _ := p.verdicts.LoadOrStore(what, new(atomic.Int64))
	return n.(*atomic.Int64).Load()
}

func (p *process) filtered(e dedup.Event) {
	what := e.Reason
	if what == "" {
		what = e.FilterAnswer
	}
	n, _ := p.verdicts.LoadOrStore(what, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	p.saved.Add(int64(e.Saved))
}

// start begins a process over the layers. Its scans wait while stalled is set.
func start(t *testing.T, client redis.UniversalClient, records *sqlstore.Store,
	stalled *atomic.Bool) *process {
	t.Helper()
	leases, err := redisadapter.New(t.Context(), client, redisadapter.Options{
		Amnesia: redisadapter.AllowAndFlag, AmnesiaFor: window,
		OnFinding: func(preflight.Finding) {},
	})
	require.NoError(t, err)
	filter, err := bloom.New(bloom.Options{Window: window, Rate: 10})
	require.NoError(t, err)
	follow(t, filter, records, stalled)
	p := &process{}
	store, err := layered.New(dying{leases}, records, layered.Config{
		HotWindow: hot, LeaseTTL: lease, Filter: filter,
		Observer: dedup.Observer{Filtered: p.filtered},
	})
	require.NoError(t, err)
	p.d, err = dedup.New(store, dedup.Config{
		Namespace: "orders", Window: window, LeaseTTL: lease, StoreTimeout: lease * 9 / 10,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		assert.NoError(t, p.d.Close(ctx))
	})
	return p
}

// follow lets a filter follow the table until the test ends.
func follow(t *testing.T, filter *bloom.Filter, records *sqlstore.Store, stalled *atomic.Bool) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := filter.Follow(ctx, bloom.Source{Name: "orders"}, bloom.FollowConfig{
			Every: every, Overlap: overlap,
			Scan: func(ctx context.Context, age time.Duration,
				yield func([16]byte, time.Duration) error) error {
				if stalled.Load() {
					return errCrash
				}
				return records.Scan(ctx, sqlstore.ScanOptions{Age: min(age, window),
					ShortestWindow: window, Page: 500},
					func(id driver.ID, age time.Duration) error { return yield(id, age) })
			},
		})
		assert.ErrorIs(t, err, context.Canceled)
	}()
	t.Cleanup(func() { stop(); <-done })
}
