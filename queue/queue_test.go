package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/queue"
)

var errHandler = errors.New("handler failed")

// rig is a Consumer over a store that counts its calls.
type rig struct {
	*queue.Consumer
	d     *dedup.Deduper
	store *deduptest.Faulty
}

func newRig(t *testing.T, cfg queue.Config) *rig {
	t.Helper()
	return newRigWith(t, cfg, dedup.Config{})
}

func newRigWith(t *testing.T, cfg queue.Config, dc dedup.Config) *rig {
	t.Helper()
	store := deduptest.NewFaulty(dedup.Memory(1000), nil)
	dc.Namespace, dc.Window, dc.LeaseTTL = "queue", time.Hour, time.Second
	d, err := dedup.New(store, dc)
	require.NoError(t, err)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if !cfg.Unclaimed {
		cfg.Deduper = d
	}
	c, err := queue.New(cfg)
	require.NoError(t, err)
	return &rig{c, d, store}
}

// state is what the store knows of an id.
func (r *rig) state(t *testing.T, id string) dedup.Record {
	t.Helper()
	rec, err := r.d.Lookup(t.Context(), id, dedup.WithScope("tests"))
	require.NoError(t, err)
	return rec
}

// log has the calls that a broker got for one delivery.
type log struct {
	mu     sync.Mutex
	calls  []string
	after  time.Duration
	reason error
	extend int
}

func (l *log) add(call string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, call)
}

func (l *log) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// delivery returns a delivery that can be parked, and the log of its calls.
func delivery(id string) (*queue.Delivery, *log) {
	l := new(log)
	return &queue.Delivery{
		ID: id, Scope: "tests", Payload: []byte("payload"), Deliveries: 1,
		Ack: func(context.Context) error { l.add("ack"); return nil },
		Nack: func(_ context.Context, after time.Duration) error {
			l.after = after
			l.add("nack")
			return nil
		},
		Park: func(_ context.Context, reason error) error {
			l.reason = reason
			l.add("park")
			return nil
		},
	}, l
}

func returns(err error) queue.Handler {
	return func(context.Context, *queue.Delivery) error { return err }
}
