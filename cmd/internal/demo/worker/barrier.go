package worker

import (
	"context"
	"sync"
	"time"
)

// settleTime bounds how long a victim waits for the others to be recorded.
const settleTime = 3 * time.Second

// barrier makes a kill precise. The handler that is to be killed runs alone: nobody else of
// its process is between effect and record then, so the kill can explain exactly one
// doubled effect, and has to.
type barrier struct {
	mu      sync.Mutex
	inside  map[string]struct{} // entered, and neither recorded nor failed
	armed   Point
	closed  bool
	changed chan struct{} // closed and replaced at every change
}

func newBarrier() *barrier {
	return &barrier{inside: make(map[string]struct{}), changed: make(chan struct{})}
}

// arm makes the next handler that enters a victim.
func (g *barrier) arm(p Point) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = p
}

// enter lets the handler of key in, when no victim is at work. It returns the point at
// which this handler is the victim, or "". The error is that of ctx; the handler is not
// inside then.
func (g *barrier) enter(ctx context.Context, key string) (Point, error) {
	g.mu.Lock()
	for g.closed {
		if err := g.wait(ctx); err != nil {
			g.mu.Unlock()
			return "", err
		}
	}
	defer g.mu.Unlock()
	if g.armed != "" && g.settle(ctx) {
		point := g.armed
		g.armed = ""
		g.inside[key] = struct{}{}
		return point, nil
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	g.inside[key] = struct{}{}
	return "", nil
}

// settle closes the barrier and waits until nobody is inside. It leaves the barrier closed if
// that happened.
func (g *barrier) settle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	g.closed = true
	for len(g.inside) > 0 {
		if g.wait(ctx) != nil {
			g.closed = false
			g.change()
			return false
		}
	}
	return true
}

// leave notes that key is recorded, or had no effect. It may be called more than once.
func (g *barrier) leave(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside, key)
	g.change()
}

// failed notes that key had no effect. If it was the victim at point p, it is let go
// and the barrier is armed again.
func (g *barrier) failed(key string, p Point) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside, key)
	if p != "" {
		g.armed, g.closed = p, false
	}
	g.change()
}

// wait waits for a change, with mu released.
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
