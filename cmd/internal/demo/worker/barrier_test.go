package worker

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustEnter(t *testing.T, g *barrier, key string, want Point) {
	t.Helper()
	p, err := g.enter(t.Context(), key)
	require.NoError(t, err, "enter(%s) = %q, %v; want %q", key, p, err, want)
	require.Equal(t, want, p, "enter(%s) = %q, %v; want %q", key, p, err, want)
}

// TestVictimIsAlone: the victim runs when every handler before it is recorded, and no handler
// enters after it. Otherwise a kill could double two effects and explain only one.
func TestVictimIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBarrier()
		mustEnter(t, g, "a", "")
		mustEnter(t, g, "b", "")
		g.arm(AfterEffect)
		victim := entering(t, g, "victim")
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		others := make(chan error, 2)
		for i := range 2 {
			go func() {
				_, err := g.enter(ctx, fmt.Sprint("late", i))
				others <- err
			}()
		}
		g.leave("a", "")
		g.leave("a", "") // twice, because a record and a lost lease may both be reported
		synctest.Wait()
		require.Empty(t, victim, "the victim runs while another is not recorded")
		g.leave("b", "")
		synctest.Wait()
		require.Len(t, victim, 1, "%d victims run, want 1; %d others do, want 0", len(victim),
			len(others))
		require.Empty(t, others, "%d victims run, want 1; %d others do, want 0", len(victim),
			len(others))
		p := <-victim
		assert.Equal(t, AfterEffect, p, "victim at %q", p)
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		_, err := g.enter(short, "latest")
		assert.ErrorIs(t, err, context.DeadlineExceeded, "enter = %v while the victim runs", err)
		cancel() // the others' handlers are canceled, as in a rebalance
		for range 2 {
			err := <-others
			assert.ErrorIs(t, err, context.Canceled, "enter = %v after its context ended", err)
		}
	})
}

// TestFailedVictimIsReplaced: a victim without an effect opens the barrier, and the next handler is
// the victim.
func TestFailedVictimIsReplaced(t *testing.T) {
	g := newBarrier()
	g.arm(BeforeEffect)
	mustEnter(t, g, "duplicate", BeforeEffect)
	g.leave("duplicate", BeforeEffect)
	mustEnter(t, g, "next", BeforeEffect)
	g.leave("next", BeforeEffect)
	g.arm("") // disarmed
	mustEnter(t, g, "another", "")
	g.leave("another", "")
	assert.Empty(t, g.inside, "%d are inside", len(g.inside))
}

// TestUnsettledGateOpens: a record that is never confirmed does not stop the worker. A later
// handler becomes the victim.
func TestUnsettledGateOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBarrier()
		mustEnter(t, g, "stuck", "")
		g.arm(BeforeEffect)
		began := time.Now()
		mustEnter(t, g, "a", "")
		waited := time.Since(began)
		assert.Equal(t, settleTime, waited, "waited %v for the stuck one, want %v", waited,
			settleTime)
		g.leave("stuck", "")
		g.leave("a", "")
		mustEnter(t, g, "b", BeforeEffect)
	})
}

// entering lets a message enter in a goroutine, and returns a channel for its point.
func entering(t *testing.T, g *barrier, id string) <-chan Point {
	t.Helper()
	entered := make(chan Point, 1)
	go func() {
		p, _ := g.enter(t.Context(), id)
		entered <- p
	}()
	return entered
}

// If the barrier is disarmed while it waits for the handlers inside, it opens. It used to stay
// closed without a victim, and the worker handled nothing more.
func TestDisarmedWhileSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBarrier()
		mustEnter(t, g, "a", "")
		g.arm(AfterEffect)
		entered := entering(t, g, "b")
		synctest.Wait()
		g.arm("")
		g.leave("a", "")
		assert.Equal(t, Point(""), <-entered)
		mustEnter(t, g, "c", "")
	})
}
