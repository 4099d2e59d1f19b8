package kafkafranz

import (
	"context"
	"sync"
)

// pollOrder keeps polls and assignments apart: no poll begins before an assignment and ends after
// it. Such a poll could hand the records of one assignment to the next one of the same partition:
//
//  1. The client takes records out of its buffer.
//  2. The partition is revoked, with unfinished messages before those records.
//  3. The partition is assigned again.
//  4. The records of the former fetch arrive first, and the watermark would begin at them.
//
// Blocking rebalances while records are handed over (kgo.BlockRebalanceOnPoll) would prevent it
// too, but then a partition that is being drained holds up the polls of all others.
type pollOrder struct {
	mu      sync.Mutex
	changed *sync.Cond         // of what follows
	polling context.CancelFunc // ends the poll under way; nil: there is none
	waiting int                // assignments that wait for it
}

func newPollOrder() *pollOrder {
	o := &pollOrder{}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// poll runs f, whose context ends when somebody is waiting.
func (o *pollOrder) poll(ctx context.Context, f func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.mu.Lock()
	for o.waiting > 0 {
		o.changed.Wait()
	}
	o.polling = cancel
	o.mu.Unlock()

	f(ctx)

	o.mu.Lock()
	defer o.mu.Unlock()
	o.polling = nil
	o.changed.Broadcast()
}

// between runs f while nobody polls.
func (o *pollOrder) between(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting++
	for o.polling != nil {
		o.polling()
		o.changed.Wait()
	}
	f()
	o.waiting--
	o.changed.Broadcast()
}
