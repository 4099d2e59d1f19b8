// Package drain counts what has to end before something is closed.
package drain

import (
	"context"
	"sync"
	"sync/atomic"
)

// Group counts the calls under way, for Close. It is not a sync.WaitGroup because calls that
// begin while Close waits must be refused. A call costs two steps of one counter and no lock:
// a duplicate that is answered in process shares nothing else with other calls.
type Group struct {
	// state holds three things in one word, so that nobody sees one without the others: how many
	// calls there are (with their handlers and claims kept alive), how many goroutines Begin has
	// counted, and whether the group is closed.
	state atomic.Uint64
	over  sync.Once
	idle  chan struct{} // closed when closed and nothing is under way

	shut sync.Once
	// Closing is closed when calls are refused.
	Closing chan struct{}
}

const (
	oneCall     = uint64(1)
	oneBehind   = uint64(1) << 31
	groupClosed = uint64(1) << 62
)

// Init makes the group ready for use.
func (g *Group) Init() { g.idle, g.Closing = make(chan struct{}), make(chan struct{}) }

// Enter begins a call. It reports false after close: the call is then refused.
func (g *Group) Enter() bool {
	if g.state.Add(oneCall)&groupClosed == 0 {
		return true
	}
	g.Leave()
	return false
}

// Closed reports whether calls are refused.
func (g *Group) Closed() bool { return g.state.Load()&groupClosed != 0 }

// Hold counts a call for a claim that is already held. It is never refused.
func (g *Group) Hold() { g.state.Add(oneCall) }

// Leave ends what Enter or Hold has begun.
func (g *Group) Leave() { g.LeaveAll(1) }

// LeaveAll is Leave of n calls.
func (g *Group) LeaveAll(n int) { g.settle(g.state.Add(^(oneCall * uint64(n)) + 1)) }

// Begin counts a goroutine that Close has to wait for, and that is nobody's call.
func (g *Group) Begin() { g.state.Add(oneBehind) }

// End ends what Begin has begun.
func (g *Group) End() { g.settle(g.state.Add(^oneBehind + 1)) }

// settle tells Close when state is that of a closed group with nothing under way.
func (g *Group) settle(state uint64) {
	if state == groupClosed {
		g.over.Do(func() { close(g.idle) })
	}
}

// Behind returns how many goroutines are under way.
func (g *Group) Behind() int { return int(g.state.Load() % groupClosed / oneBehind) }

// Close refuses new calls and waits. It returns how many calls are left when ctx ends first.
func (g *Group) Close(ctx context.Context) (left int, drained bool) {
	g.settle(g.state.Or(groupClosed) | groupClosed)
	g.shut.Do(func() { close(g.Closing) })
	select {
	case <-g.idle:
		return 0, true
	default:
	}
	select {
	case <-g.idle:
		return 0, true
	case <-ctx.Done():
		return int(g.state.Load() % oneBehind), false
	}
}
