package queuetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/queue"
)

// breaker changes what a source does.
type breaker struct {
	queue.Source
	fetch  func(ctx context.Context, src queue.Source, limit int) ([]*queue.Delivery, error)
	change func(d *queue.Delivery)
}

func (b breaker) Fetch(ctx context.Context, limit int) ([]*queue.Delivery, error) {
	fetch := b.fetch
	if fetch == nil {
		fetch = func(ctx context.Context, src queue.Source, limit int) ([]*queue.Delivery, error) {
			return src.Fetch(ctx, limit)
		}
	}
	ds, err := fetch(ctx, b.Source, limit)
	for _, d := range ds {
		if b.change != nil {
			b.change(d)
		}
	}
	return ds, err
}

var deliveries atomic.Int32

// broken has adapters with one fault each, and the row that must find it.
var broken = map[string]struct {
	convicts string
	breaker
}{
	"acknowledges when it fetches": {"unacknowledged_while_at_work", breaker{
		change: func(d *queue.Delivery) { _ = d.Ack(context.Background()) }}},
	"drops on error": {"handler_fails", breaker{change: func(d *queue.Delivery) {
		d.Nack = func(ctx context.Context, _ time.Duration) error { return d.Ack(ctx) }
	}}},
	"never delivers again": {"handler_fails", breaker{change: func(d *queue.Delivery) {
		nack := d.Nack
		d.Nack = func(ctx context.Context, _ time.Duration) error { return nack(ctx, time.Hour) }
	}}},
	"extends never":    {"long_work", breaker{change: func(d *queue.Delivery) { d.Extend = nil }}},
	"extends too late": {"long_work", breaker{change: func(d *queue.Delivery) { d.Every *= 8 }}},
	"acknowledges nothing": {"plain", breaker{change: func(d *queue.Delivery) {
		d.Ack = func(context.Context) error { return nil }
	}}},
	"id of the delivery": {"plain", breaker{change: func(d *queue.Delivery) {
		d.ID = fmt.Sprintf("delivery-%d", deliveries.Add(1))
	}}},
	"another payload": {"plain", breaker{change: func(d *queue.Delivery) { d.Payload = nil }}},
	"parks nothing": {"poison_for_good", breaker{change: func(d *queue.Delivery) {
		d.Park = func(context.Context, error) error { return nil }
	}}},
	"parks in its own nack": {"poison_attempts", breaker{change: func(d *queue.Delivery) {
		nack := d.Nack
		d.Nack = func(ctx context.Context, after time.Duration) error {
			_ = d.Park(ctx, errPlanned)
			return nack(ctx, after)
		}
	}}},
	"forgets the key": {"order", breaker{change: func(d *queue.Delivery) { d.Key = "" }}},
	"fetches more": {"fetch", breaker{
		fetch: func(ctx context.Context, src queue.Source, limit int) ([]*queue.Delivery, error) {
			return src.Fetch(ctx, limit+1)
		}}},
	"fetches on": {"fetch", breaker{
		fetch: func(_ context.Context, src queue.Source, limit int) ([]*queue.Delivery, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second)
			defer cancel()
			return src.Fetch(ctx, limit)
		}}},
	"drops what it fetched when the end comes": {"shutdown_at_work", breaker{
		change: func(d *queue.Delivery) {
			d.Nack = func(ctx context.Context, _ time.Duration) error { return d.Ack(ctx) }
		}}},
}

func TestBrokenAdaptersAreConvicted(t *testing.T) {
	defer func(d time.Duration) { patience = d }(patience)
	patience = 15 * time.Second
	var all sync.WaitGroup
	rows := map[string]bool{}
	for name, b := range broken {
		rows[b.convicts] = true
		all.Go(func() {
			assert.True(t, convicted(t, b.convicts, b.breaker), "%s was not convicted by %s", name,
				b.convicts)
		})
	}
	all.Wait()
	for name := range rows { // or a slow machine alone might convict the others
		all.Go(func() {
			assert.False(t, convicted(t, name, breaker{}), "a sound adapter, by %s", name)
		})
	}
	all.Wait()
}

// convicted runs one row on an adapter with the fault b, and reports whether it fails.
func convicted(t *testing.T, name string, b breaker) bool {
	q := NewBroker(2 * time.Second).Queue()
	q.IDs = 100
	connect := q.Connect
	q.Connect = func(t testing.TB) (queue.Source, func()) {
		src, kill := connect(t)
		return breaker{src, b.fetch, b.change}, kill
	}
	for _, r := range slices.Concat(alone, together) {
		if r.name != name {
			continue
		}
		rec := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.prove(rec, q, &table{rows: map[string]result{}})
		}()
		<-done
		return rec.Failed()
	}
	require.Fail(t, "there is no row "+name)
	return false
}

// recorder is a testing.TB that keeps failures instead of failing the test around it.
type recorder struct {
	testing.TB
	failed atomic.Bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Logf(string, ...any)   {}
func (r *recorder) Failed() bool          { return r.failed.Load() }
func (r *recorder) Error(...any)          { r.failed.Store(true) }
func (r *recorder) Errorf(string, ...any) { r.failed.Store(true) }
func (r *recorder) Fatal(...any)          { r.failed.Store(true); runtime.Goexit() }
func (r *recorder) Fatalf(string, ...any) { r.failed.Store(true); runtime.Goexit() }

func TestEveryRowSaysWhatItPrevents(t *testing.T) {
	for _, r := range slices.Concat(alone, together) {
		assert.NotEmpty(t, r.prevents, r.name)
		assert.NotNil(t, r.check, r.name)
	}
}
