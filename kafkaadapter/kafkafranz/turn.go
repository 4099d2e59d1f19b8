package kafkafranz

import (
	"context"
	"sync"
)

// turn keeps polls and assignments apart: no poll begins before an assignment and ends
// after it.
//
// One that did could hand the records of an assignment to the next one of the same
// partition. The client takes them out of its buffer, the partition is revoked, its
// unfinished messages with it, and assigned again; then the records of the former fetch,
// which lie behind those messages, arrive first, and the watermark would begin there.
//
// Blocking rebalances while records are handed over (kgo.BlockRebalanceOnPoll) would do it
// too, but then a partition that is being drained holds up the polls of all others.
type turn struct {
	mu      sync.Mutex
	changed *sync.Cond         // of what follows
	polling context.CancelFunc // ends the poll under way; nil: there is none
	waiting int                // assignments that wait for it
}

func newTurn() *turn {
	t := &turn{}
	t.changed = sync.NewCond(&t.mu)
	return t
}

// poll runs f, whose context ends when somebody is waiting.
func (t *turn) poll(ctx context.Context, f func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	for t.waiting > 0 {
		t.changed.Wait()
	}
	t.polling = cancel
	t.mu.Unlock()

	f(ctx)

	t.mu.Lock()
	defer t.mu.Unlock()
	t.polling = nil
	t.changed.Broadcast()
}

// between runs f while nobody polls.
func (t *turn) between(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting++
	for t.polling != nil {
		t.polling()
		t.changed.Wait()
	}
	f()
	t.waiting--
	t.changed.Broadcast()
}
