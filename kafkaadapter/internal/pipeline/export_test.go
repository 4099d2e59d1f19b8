package pipeline

import (
	"cmp"
	"context"
)

// NewKeyQueues returns queues for a process function that takes one item and decides at once, as
// most tests want it.
func NewKeyQueues[T any](ctx context.Context, cfg KeyQueuesConfig,
	process func(context.Context, T) Decision) (*KeyQueues[T], error) {
	cfg.Batch, cfg.Workers = 1, cmp.Or(cfg.Workers, 16)
	if process == nil {
		return NewBatchKeyQueues[T](ctx, cfg, nil, nil)
	}
	return NewBatchKeyQueues(ctx, cfg, func(ctx context.Context, tasks []Task[T]) {
		tasks[0].Settle(process(ctx, tasks[0].Item))
	}, nil)
}

// Submit submits one item.
func (k *KeyQueues[T]) Submit(key []byte, item T) error {
	return k.SubmitAll([]T{item}, func(T) []byte { return key })
}

// KeyQueueStats is what [KeyQueues] hold at one moment.
type KeyQueueStats struct {
	// Items were submitted and are neither finished nor handed back.
	Items int
	// Keys have at least one item; without an order every item is a key.
	Keys int
	// Running is the number of workers, each with a batch.
	Running int
	// Parked keys wait for the delay of a [RetryAfter].
	Parked int
}

// Stats returns a consistent reading. It visits no queue.
func (k *KeyQueues[T]) Stats() KeyQueueStats {
	k.mu.Lock()
	defer k.mu.Unlock()
	return KeyQueueStats{Items: k.items, Keys: k.all.len, Running: k.active, Parked: k.parked}
}
