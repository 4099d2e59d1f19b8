package dedup

import (
	"context"
	"sync"
	"sync/atomic"
)

// life counts the calls under way, for Close. It is not a sync.WaitGroup because calls that
// begin while Close waits must be refused. A call costs two steps of one counter and no lock:
// a duplicate that is answered in process shares nothing else with other calls.
type life struct {
	// state holds in one word, so that nobody sees one without the others, how many
	// calls there are (their handlers and claims kept alive, too), how many batches on
	// their way to the store, and whether it is closed.
	state atomic.Uint64
	over  sync.Once
	idle  chan struct{} // closed when closed and nothing is under way

	shut    sync.Once
	closing chan struct{} // closed when calls are refused
}

const (
	oneCall    = uint64(1)
	oneBehind  = uint64(1) << 31
	lifeClosed = uint64(1) << 62
)

func (l *life) init() { l.idle, l.closing = make(chan struct{}), make(chan struct{}) }

// enter begins a call, or refuses it after Close.
func (l *life) enter() error {
	if l.state.Add(oneCall)&lifeClosed == 0 {
		return nil
	}
	l.leave()
	return ErrClosed
}

// closed reports whether calls are refused.
func (l *life) closed() bool { return l.state.Load()&lifeClosed != 0 }

// hold counts a call for a claim that is already held. It is never refused.
func (l *life) hold() { l.state.Add(oneCall) }

func (l *life) leave() { l.settle(l.state.Add(^oneCall + 1)) }

// begin counts a goroutine that Close has to wait for, but is nobody's call.
func (l *life) begin() { l.state.Add(oneBehind) }

func (l *life) end() { l.settle(l.state.Add(^oneBehind + 1)) }

// settle tells Close when state is that of a closed life with nothing under way.
func (l *life) settle(state uint64) {
	if state == lifeClosed {
		l.over.Do(func() { close(l.idle) })
	}
}

// calls is how many calls are under way, and behind, how many batches.
func (l *life) calls() int  { return int(l.state.Load() % oneBehind) }
func (l *life) behind() int { return int(l.state.Load() % lifeClosed / oneBehind) }

// close refuses what comes, and returns how many calls are left when ctx ends first.
func (l *life) close(ctx context.Context) (left int, drained bool) {
	l.settle(l.state.Or(lifeClosed) | lifeClosed)
	l.shut.Do(func() { close(l.closing) })
	select {
	case <-l.idle:
		return 0, true
	default:
	}
	select {
	case <-l.idle:
		return 0, true
	case <-ctx.Done():
		return l.calls(), false
	}
}
