package pipeline

import "sync"

// Gather sends in batches what is added one by one: the first at once, and what comes while
// that is under way together after it. So a lone item waits for nothing, and a crowd shares
// round trips. Goroutines exist only while there is something to send.
//
// Make one with [NewGather]. All methods are safe for concurrent use.
type Gather[T any] struct {
	send    func([]T)
	max     int
	senders int

	mu     sync.Mutex
	queue  []T
	active int
}

// NewGather returns a Gather of batches of at most size, of which senders may be under way
// at once: a second one only when there is a full batch for it. Send owns its argument.
func NewGather[T any](size, senders int, send func([]T)) *Gather[T] {
	return &Gather[T]{send: send, max: size, senders: senders}
}

// Add never blocks.
func (g *Gather[T]) Add(items ...T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue = append(g.queue, items...)
	if g.active == 0 || g.active < g.senders && len(g.queue) >= g.max {
		g.active++
		go g.run()
	}
}

func (g *Gather[T]) run() {
	for {
		batch := g.take()
		if batch == nil {
			return
		}
		g.send(batch)
	}
}

// take returns the next batch, or nil when the sender is to end.
func (g *Gather[T]) take() []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == 0 {
		g.active--
		return nil
	}
	if len(g.queue) <= g.max {
		batch := g.queue
		g.queue = nil
		return batch
	}
	batch := append([]T(nil), g.queue[:g.max]...)
	g.queue = g.queue[g.max:]
	return batch
}
