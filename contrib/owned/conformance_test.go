package owned

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// suiteOptions suit the suite: its longest lease is an hour, and so is its window.
func suiteOptions(prefix string) Options {
	return Options{
		Prefix: prefix, Secret: []byte("a secret of the tests"), Window: time.Hour,
		Hold: 100 * time.Hour, Lease: 4 * time.Hour, ExpectedKeys: 10_000,
	}
}

// open returns a Store over an inner one in the same Redis.
func open(t testing.TB, b redistest.Backend, o Options) *Store {
	t.Helper()
	inner, err := redisadapter.New(t.Context(), b.Client,
		redisadapter.Options{Prefix: b.Prefix + "-in", WrappedBy: Name})
	must(t, err)
	return over(t, b, inner, o)
}

func over(t testing.TB, b redistest.Backend, inner dedup.Store, o Options) *Store {
	t.Helper()
	must(t, Init(t.Context(), b.Client, o))
	s, err := New(t.Context(), b.Client, inner, o)
	must(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Close(context.Background()))
	})
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	require.NoError(t, err)
}

// ready acquires a partition and waits until its filter is loaded.
func ready(t testing.TB, s *Store, p Partition) *Ownership {
	t.Helper()
	o, err := s.Acquire(t.Context(), p)
	must(t, err)
	o.working.Wait() // for the loader
	require.True(t, o.loaded.Load(), "the filter was not loaded")
	return o
}

// placing is a Store for callers that name any partition, or none: it places all keys in the one
// that is held. A caller that names another partition gets no generation: it takes nothing over,
// and nobody takes over from it.
type placing struct{ *Store }

func (p *placing) place(o *driver.Origin) {
	home := driver.Origin{Source: "payments/orders"}
	switch {
	case o.Digest() == home.Digest() && o.Partition == 3:
		return
	case o.Source != "group/topic" || o.Partition != 0:
		o.Generation = 0
	}
	o.Source, o.SourceDigest, o.Partition = "payments/orders", 0, 3
}

func (p *placing) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	placed := append([]driver.ClaimRequest(nil), reqs...)
	for i := range placed {
		p.place(&placed[i].Origin)
	}
	return p.Store.Claim(ctx, placed)
}

func (p *placing) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	placed := append([]driver.Finish(nil), changes...)
	for i := range placed {
		p.place(&placed[i].Origin)
	}
	return p.Store.Finish(ctx, placed)
}

// TestConformance runs the suite over partitions that are held.
func TestConformance(t *testing.T) {
	for _, name := range redistest.Backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := redistest.Open(t, name)
			s := &placing{open(t, b, suiteOptions(b.Prefix))}
			ready(t, s.Store, Partition{Source: "payments/orders", Number: 3, Count: 4})
			deduptest.Run(t, deduptest.Harness{
				SeenOnly: true, OnePartition: true, WalkSteps: 10,
				New: func(testing.TB) dedup.Store { return s },
			})
		})
	}
}
