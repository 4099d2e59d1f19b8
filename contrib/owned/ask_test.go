package owned

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/internal/redistest"
)

// TestAsksAndFoldsDoNotWaitForEachOther: two asks for the same two partitions, in either order, and
// a fold in each, all at a time.
func TestAsksAndFoldsDoNotWaitForEachOther(t *testing.T) {
	_, client := redistest.Mini(t)
	s := plainStore(t, client, fewBuckets("asks"))
	a := takeLoaded(t, s, Partition{Source: "s", Number: 0, Count: 2})
	b := takeLoaded(t, s, Partition{Source: "s", Number: 1, Count: 2})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 20 {
			var all sync.WaitGroup
			a.mu.Lock() // all four stop halfway
			b.mu.Lock()
			for _, order := range [][]*Ownership{{a, b}, {b, a}} {
				all.Go(func() {
					asks := []*ask{{o: order[0]}, {o: order[1]}}
					for _, one := range asks {
						one.items = []lookup{{member: 2, in: anywhere}}
					}
					s.roundTrip(ctx, nil, asks)
					for _, one := range asks {
						assert.NoError(t, one.reply.Err)
					}
				})
			}
			letRun()
			for _, o := range []*Ownership{a, b} {
				all.Go(func() { o.beginFolding(0) })
			}
			letRun()
			a.mu.Unlock()
			b.mu.Unlock()
			all.Wait()
		}
	}()
	select {
	case <-over:
	case <-ctx.Done():
		t.Fatal("they wait for each other")
	}
}

// TestAskWhileFolding folds all there is at each command of an ask: before it, and between its
// pipelines. Each mark is found. The very first fold moves marks to buckets that the ask has not
// named.
func TestAskWhileFolding(t *testing.T) {
	_, client := redistest.Mini(t)
	for _, begun := range []bool{false, true} {
		for step := int64(1); ; step++ {
			o, ids := filled(t, client, fmt.Sprintf("ask%t%d", begun, step))
			if begun { // one set is in buckets, and another one is to be
				_, err := o.foldSet(t.Context(), o.genNow(), 1)
				noErr(t, err)
			}
			hooked := redistest.Patient(t, client.Options().Addr)
			var steps *stepper
			whole, runner := o.s.client, o.s.runner
			steps = &stepper{do: func(n int64) {
				if n != step {
					return
				}
				hooks, hookedRunner := o.s.client, o.s.runner
				o.s.client, o.s.runner = whole, runner
				noErr(t, o.fold(t.Context()))
				o.s.client, o.s.runner = hooks, hookedRunner
			}}
			hooked.AddHook(steps)
			o.s.client, o.s.runner = hooked, script.NewRunner(hooked)
			a := &ask{o: o}
			for _, m := range membersOf(o, ids) {
				a.items = append(a.items, lookup{member: m, in: anywhere})
			}
			o.s.roundTrip(t.Context(), nil, []*ask{a})
			o.s.client, o.s.runner = whole, runner
			noErr(t, a.reply.Err)
			for i, f := range a.reply.Found {
				require.True(t, f.Done(),
					"folded before command %d, begun %t: of %d marks that of %d is not found", step,
					begun, len(ids), i)
			}
			letGo(t, o)
			if steps.n.Load() < step {
				break
			}
		}
	}
}

// letRun lets other goroutines run until they wait.
func letRun() {
	for range 10_000 {
		runtime.Gosched()
	}
}
