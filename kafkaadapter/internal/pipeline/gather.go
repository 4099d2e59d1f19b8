package pipeline

import "sync"

// Gather sends items, which are added one by one, in batches. It sends the first item at once; the
// items that come meanwhile follow in one batch. So a lone item waits for nothing, and many share
// round trips. Goroutines exist only while there is something to send.
//
// Make one with [NewGather]. All methods are safe for concurrent use.
type Gather[T any] struct {
	send    func([]T)
	max     int
	senders int

	mu     sync.Mutex
	full   ring[[]T] // batches of size, oldest first
	last   []T       // the batch that is being filled
	spare  [][]T     // arrays of batches that are over, for the next ones
	active int
}

// spareArrays bounds the arrays that a Gather keeps, for each sender: a burst fills many.
const spareArrays = 4

// NewGather returns a Gather that sends batches of at most size items, up to senders batches at
// once. A second sender starts only when there is a full batch for it. Send owns its argument until
// it returns.
func NewGather[T any](size, senders int, send func([]T)) *Gather[T] {
	return &Gather[T]{send: send, max: size, senders: senders}
}

// Add adds items. It never blocks.
func (g *Gather[T]) Add(items ...T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, item := range items {
		g.add(item)
	}
	if g.active == 0 || g.active < g.senders && g.full.len() > 0 {
		g.active++
		go g.run()
	}
}

func (g *Gather[T]) add(item T) {
	if g.last == nil {
		g.last = g.array()
	}
	if g.last = append(g.last, item); len(g.last) == g.max {
		g.full.push(g.last)
		g.last = nil
	}
}

// array is room for a batch.
func (g *Gather[T]) array() []T {
	last := len(g.spare) - 1
	if last < 0 {
		return make([]T, 0, g.max)
	}
	a := g.spare[last]
	g.spare[last], g.spare = nil, g.spare[:last]
	return a
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

// giveBack keeps the array of a batch that is over.
func (g *Gather[T]) giveBack(batch []T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.spare) < spareArrays*g.senders {
		g.spare = append(g.spare, batch[:0])
	}
}

// take returns the next batch, or nil when the sender is to end.
func (g *Gather[T]) take() []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.full.len() > 0:
		return g.full.pop()
	case g.last != nil:
		batch := g.last
		g.last = nil
		return batch
	}
	g.active--
	return nil
}
