package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrStopped is returned by [KeyQueues.SubmitAll] once nothing is started any more. The items
// were not taken.
var ErrStopped = errors.New("pipeline: queues are stopped")

// Order says which items keep their order.
type Order uint8

const (
	// ByKey runs items of one key in the order of SubmitAll, and different keys in
	// parallel. Items without a key (nil, which is not the same as an empty one) have
	// no order, as in Kafka, where they are spread over partitions.
	ByKey Order = iota
	// ByPartition runs everything in the order of SubmitAll, one at a time.
	ByPartition
	// Unordered runs everything in parallel. It starts items in the order of SubmitAll.
	Unordered
)

// KeyQueuesConfig says how [KeyQueues] run their items.
type KeyQueuesConfig struct {
	// Workers is the most items that run at a time. Required.
	Workers int
	// Order of the items. Default: [ByKey].
	Order Order
	// Batch is the most items of one call of the process function of [NewBatchKeyQueues].
	// Default: 1.
	Batch int
	// OnStop, if set, is called once, with the error of the first [Stop] decision, from
	// the goroutine that gave it. It may be a [context.CancelCauseFunc] that ends the
	// intake. It is not called for Drain, nor when the context ends.
	OnStop func(error)
}

// KeyQueues run items: those of one key one after the other and in order, those of
// different keys side by side, at most Workers at a time.
//
// Every key has its own queue, and workers take turns over the keys that are ready. When the head
// of a key waits (for its backoff, or for the same message in flight elsewhere), the key is parked
// with a timer and frees its worker, so it holds up no other key. Hashing keys over a fixed set of
// goroutines would be simpler, and would let one key in a retry stop every key that shares its
// goroutine. A process function that blocks inside, however, holds its worker.
//
// There are no idle goroutines: a worker starts when there is something to run and ends when there
// is nothing. Queues are not bounded here, so that SubmitAll never blocks the reader; a
// [Backpressure] bounds what is in flight. All methods are safe for concurrent use.
// [KeyQueues.Drain] ends KeyQueues.
type KeyQueues[T any] struct {
	process func(context.Context, []Task[T])
	alone   func(T) bool
	workers int
	batch   int
	order   Order
	onStop  func(error)

	// ctx is the context of the process functions. It is not the context of one call, because they
	// outlive the SubmitAll that brought their item; Drain ends it.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	byKey    map[uint64]*keyQueue[T] // by the hash of the key
	all      queueList[T]
	ready    ring[*keyQueue[T]]
	free     []*keyQueue[T] // empty queues for reuse
	items    int            // submitted, neither finished nor handed back
	parked   int            // queues whose head waits for its timer
	active   int            // workers
	open     int            // items in process, or not settled after it
	err      error          // of the first Stop
	draining bool
	idle     chan struct{} // closed when active and open reach zero, if somebody waits
}

// NewBatchKeyQueues returns empty queues that run items with process, which gets a context derived
// from ctx, and up to Batch items which may run now, those of one key in their order. Each item
// must be settled exactly once, before process returns or at any later time: until then its key
// waits, but not its worker. The slice belongs to process until it returns. When process hands a
// task over, it puts the zero Task in its place: if process ends its goroutine, the tasks left in
// the slice are settled for it. An item for which alone is true gets a call to itself; with a nil
// alone no item does.
//
// NewBatchKeyQueues starts no goroutine. It returns an error that names the fault: a nil process,
// Workers below 1, a negative Batch, or an Order that does not exist.
//
// When ctx ends, running items see it and nothing more is started. So ctx should
// outlive the claim: a session's context ends when a rebalance begins, and would cut
// off exactly the handlers that Drain lets finish. [context.WithoutCancel] of it
// keeps its values.
func NewBatchKeyQueues[T any](ctx context.Context, cfg KeyQueuesConfig,
	process func(context.Context, []Task[T]), alone func(T) bool) (*KeyQueues[T], error) {
	switch {
	case process == nil:
		return nil, errors.New("pipeline: KeyQueues need a process function")
	case cfg.Workers < 1:
		return nil, fmt.Errorf("pipeline: Workers is not positive: %d", cfg.Workers)
	case cfg.Batch < 0:
		return nil, fmt.Errorf("pipeline: Batch is negative: %d", cfg.Batch)
	case cfg.Order > Unordered:
		return nil, fmt.Errorf("pipeline: unknown Order %d", cfg.Order)
	}
	k := &KeyQueues[T]{
		process: process, alone: alone, workers: cfg.Workers, batch: max(cfg.Batch, 1),
		order: cfg.Order, onStop: cfg.OnStop, byKey: make(map[uint64]*keyQueue[T]),
	}
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	return k, nil
}

// Task is an item that is to be run.
type Task[T any] struct {
	Item  T
	k     *KeyQueues[T]
	queue *keyQueue[T]
	at    int // in queue.run
}

// Settle says what became of the item. It must be called exactly once.
func (t Task[T]) Settle(v Decision) { t.k.settleAll([]Task[T]{t}, []Decision{v}) }

// SettleAll settles tasks of one KeyQueues, each with the decision at its index. It is cheaper than
// a call of Settle for each.
func SettleAll[T any](tasks []Task[T], decisions []Decision) {
	if len(tasks) > 0 {
		tasks[0].k.settleAll(tasks, decisions)
	}
}

// SubmitAll queues each item, in order, behind those of its key; it takes all of them or none. It
// never blocks. It reads the keys only, and only in ByKey order. It returns [ErrStopped] after a
// Stop decision, after Halt or Drain, and when the context has ended; the items then stay with the
// caller.
func (k *KeyQueues[T]) SubmitAll(items []T, key func(T) []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped() {
		return ErrStopped
	}
	for _, item := range items {
		k.submit(key(item), item)
	}
	return nil
}

func (k *KeyQueues[T]) submit(key []byte, item T) {
	q := k.queueOf(key)
	q.items.push(item)
	k.items++
	if q.state == queueIdle {
		k.makeReady(q)
	}
}

// Context returns the context of the process functions. It ends when Drain has waited long enough.
func (k *KeyQueues[T]) Context() context.Context { return k.ctx }

// Err returns the error of the first [Stop] decision, or nil.
func (k *KeyQueues[T]) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// stopped reports whether nothing may be started any more.
func (k *KeyQueues[T]) stopped() bool {
	return k.draining || k.err != nil || k.ctx.Err() != nil
}

// makeReady puts a queue with items behind those that are ready, and starts a worker
// for it if one may be started.
func (k *KeyQueues[T]) makeReady(q *keyQueue[T]) {
	q.state = queueReady
	k.ready.push(q)
	if k.active < k.workers && !k.stopped() {
		k.active++
		go k.work()
	}
}

// park keeps a queue from running for d.
func (k *KeyQueues[T]) park(q *keyQueue[T], d time.Duration) {
	q.state = queueParked
	k.parked++
	if q.timer == nil {
		q.timer = time.AfterFunc(d, func() { k.unpark(q) })
		return
	}
	q.timer.Reset(d)
}

// unpark runs when a queue's timer fires. By then Drain may have emptied the queue, while the
// timer's goroutine was waiting for the lock: only a queue that is still parked becomes ready. It
// cannot have been reused since: only unpark itself lets a parked queue run and become empty.
func (k *KeyQueues[T]) unpark(q *keyQueue[T]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if q.state != queueParked {
		return
	}
	k.parked--
	k.makeReady(q)
}
