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
	spare  [][]T // arrays of batches that are over, for the next ones
	active int
}

// NewGather returns a Gather of batches of at most size, of which senders may be under way
// at once: a second one only when there is a full batch for it. Send owns its argument until it
// returns.
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
		clear(batch)
		g.giveBack(batch)
	}
}

// giveBack keeps the array of a batch that is over, unless a crowd has made it large.
func (g *Gather[T]) giveBack(batch []T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if cap(batch) <= 2*g.max && len(g.spare) <= g.senders {
		g.spare = append(g.spare, batch[:0])
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
	var spare []T
	if last := len(g.spare) - 1; last >= 0 {
		spare, g.spare = g.spare[last], g.spare[:last]
	}
	if len(g.queue) <= g.max {
		batch := g.queue
		g.queue = spare
		return batch
	}
	batch := append(spare, g.queue[:g.max]...)
	left := copy(g.queue, g.queue[g.max:])
	clear(g.queue[left:])
	g.queue = g.queue[:left]
	return batch
}
