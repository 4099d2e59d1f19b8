package worker

import (
	"context"
	"sync"
	"time"
)

// settleTime bounds how long a victim waits until the other handlers are recorded.
const settleTime = 3 * time.Second

// barrier makes a kill precise: the handler that is to be killed runs alone. No other handler of
// its process is then between effect and record. So the kill can explain exactly one doubled
// effect, and it must.
type barrier struct {
	mu      sync.Mutex
	inside  map[any]struct{} // entered, and neither recorded nor failed
	armed   Point
	closed  bool
	changed chan struct{} // closed and replaced at every change
}

func newBarrier() *barrier {
	return &barrier{inside: make(map[any]struct{}), changed: make(chan struct{})}
}

// arm makes the next handler that enters the victim.
func (g *barrier) arm(p Point) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = p
}

// enter lets the handler of key in when no victim is inside. It returns the point at which this
// handler is to be killed, or "". If it returns an error, which is that of ctx, the handler is not
// inside.
func (g *barrier) enter(ctx context.Context, key any) (Point, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.closed {
		if err := g.wait(ctx); err != nil {
			return "", err
		}
	}
	var victim Point
	if g.armed != "" {
		victim = g.settle(ctx)
	}
	if err := ctx.Err(); victim == "" && err != nil {
		return "", err
	}
	g.inside[key] = struct{}{}
	return victim, nil
}

// settle closes the barrier, waits until no handler is inside, and returns the point at which the
// next handler is to be killed. If that takes too long, or the barrier is disarmed meanwhile,
// settle opens the barrier again and returns "".
func (g *barrier) settle(ctx context.Context) (victim Point) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	var err error
	for g.closed = true; len(g.inside) > 0 && err == nil; {
		err = g.wait(ctx)
	}
	if err == nil && g.armed != "" {
		victim, g.armed = g.armed, ""
		return victim
	}
	g.closed = false
	g.change()
	return ""
}

// leave notes that the handler of key is recorded, or had no effect. It may be called more than
// once. A victim that leaves is still alive, because it had no effect: then p is its point, the
// barrier opens, and is armed again. For any other handler p is "".
func (g *barrier) leave(key any, p Point) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside, key)
	if p != "" {
		g.armed, g.closed = p, false
	}
	g.change()
}

// wait waits for a change, and releases mu meanwhile.
func (g *barrier) wait(ctx context.Context) error {
	changed := g.changed
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *barrier) change() {
	close(g.changed)
	g.changed = make(chan struct{})
}
