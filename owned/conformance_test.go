package owned

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// testOptions suit the suite: its longest lease is an hour, and so is its window.
func testOptions(prefix string) Options {
	return Options{
		Prefix: prefix, Secret: []byte("a secret of the tests"), Window: time.Hour, Hold: 100 * time.Hour, Lease: 4 * time.Hour,
		ExpectedKeys: 10_000,
	}
}

// open returns a Store over an inner one in the same Redis.
func open(t testing.TB, b redistest.Backend, o Options) *Store {
	t.Helper()
	inner, err := redisadapter.New(t.Context(), b.Client, redisadapter.Options{Prefix: b.Prefix + "-in", Owned: true})
	must(t, err)
	return over(t, b, inner, o)
}

func over(t testing.TB, b redistest.Backend, inner dedup.Store, o Options) *Store {
	t.Helper()
	must(t, Boot(t.Context(), b.Client, o))
	s, err := New(t.Context(), b.Client, inner, o)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ready acquires a partition and waits until its filter is loaded.
func ready(t testing.TB, s *Store, p Partition) *Ownership {
	t.Helper()
	o, err := s.Acquire(t.Context(), p)
	must(t, err)
	o.working.Wait() // for the loader
	if !o.loaded.Load() {
		t.Fatal("the filter was not loaded")
	}
	return o
}

// placing is a Store whose callers need not name a partition of theirs: it holds every one that is named,
// and one for those that name none.
type placing struct {
	*Store
	t  testing.TB
	mu sync.Mutex
}

const elsewhereIn = 64 // partitions of every source

func (p *placing) place(o *dedup.Origin) {
	if o.Source == "" {
		*o = dedup.Origin{Source: "suite", Offset: o.Offset}
	}
	o.Partition = (o.Partition%elsewhereIn + elsewhereIn) % elsewhereIn
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.owner(o); err == nil {
		return
	}
	own, err := p.Acquire(context.Background(), Partition{Source: o.Source, Number: o.Partition, Count: elsewhereIn})
	if err != nil {
		p.t.Errorf("Acquire: %v", err)
		return
	}
	own.working.Wait()
}

func (p *placing) Claim(ctx context.Context, reqs []dedup.ClaimRequest) []dedup.Answer {
	placed := append([]dedup.ClaimRequest(nil), reqs...)
	for i := range placed {
		p.place(&placed[i].Origin)
	}
	return p.Store.Claim(ctx, placed)
}

func (p *placing) Finish(ctx context.Context, changes []dedup.Change) []dedup.Answer {
	placed := append([]dedup.Change(nil), changes...)
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
			s := &placing{Store: open(t, b, testOptions(b.Prefix)), t: t}
			deduptest.Run(t, deduptest.Harness{
				DoneOnly: true, OnePartition: true, New: func(testing.TB) dedup.Store { return s },
			})
		})
	}
}
