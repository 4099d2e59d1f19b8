package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func mustEnter(t *testing.T, g *barrier, key string, want Point) {
	t.Helper()
	if p, err := g.enter(t.Context(), key); err != nil || p != want {
		t.Fatalf("enter(%s) = %q, %v; want %q", key, p, err, want)
	}
}

// TestVictimIsAlone: it runs when everybody before it is recorded, and nobody enters
// after it. Otherwise a kill could double two effects, and explain one.
func TestVictimIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBarrier()
		mustEnter(t, g, "a", "")
		mustEnter(t, g, "b", "")
		g.arm(AfterEffect)
		victim := make(chan Point, 1)
		go func() {
			p, _ := g.enter(t.Context(), "victim")
			victim <- p
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		others := make(chan error, 2)
		for i := range 2 {
			go func() {
				_, err := g.enter(ctx, fmt.Sprint("late", i))
				others <- err
			}()
		}
		g.leave("a")
		g.leave("a") // twice: a record and a lost lease can both be told
		synctest.Wait()
		if len(victim) != 0 {
			t.Fatal("the victim runs while another is not recorded")
		}
		g.leave("b")
		synctest.Wait()
		if len(victim) != 1 || len(others) != 0 {
			t.Fatalf("%d victims run, want 1; %d others do, want 0", len(victim), len(others))
		}
		if p := <-victim; p != AfterEffect {
			t.Errorf("victim at %q", p)
		}
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		if _, err := g.enter(short, "latest"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("enter = %v while the victim runs", err)
		}
		cancel() // the others' handlers are canceled, as in a rebalance
		for range 2 {
			if err := <-others; !errors.Is(err, context.Canceled) {
				t.Errorf("enter = %v after its context ended", err)
			}
		}
	})
}

// TestFailedVictimIsReplaced: a victim that had no effect opens the barrier, and the next
// one is a victim.
func TestFailedVictimIsReplaced(t *testing.T) {
	g := newBarrier()
	g.arm(BeforeEffect)
	mustEnter(t, g, "duplicate", BeforeEffect)
	g.failed("duplicate", BeforeEffect)
	mustEnter(t, g, "next", BeforeEffect)
	g.failed("next", BeforeEffect)
	g.arm("") // disarmed
	mustEnter(t, g, "another", "")
	g.failed("another", "")
	if len(g.inside) != 0 {
		t.Errorf("%d are inside", len(g.inside))
	}
}

// TestUnsettledGateOpens: a record that is never confirmed does not stop the worker; the
// next handler tries to be the victim.
func TestUnsettledGateOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBarrier()
		mustEnter(t, g, "stuck", "")
		g.arm(BeforeEffect)
		began := time.Now()
		mustEnter(t, g, "a", "")
		if waited := time.Since(began); waited != settleTime {
			t.Errorf("waited %v for the stuck one, want %v", waited, settleTime)
		}
		g.leave("stuck")
		g.leave("a")
		mustEnter(t, g, "b", BeforeEffect)
	})
}
