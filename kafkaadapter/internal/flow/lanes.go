package flow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// DefaultWorkers is the default of [LanesConfig].Workers.
const DefaultWorkers = 16

// ErrStopped is returned by [Lanes.Submit] once nothing is started any more. The item
// was not taken.
var ErrStopped = errors.New("flow: lanes are stopped")

// Order says which items keep their order.
type Order uint8

const (
	// ByKey runs items of one key in the order of Submit, and different keys in
	// parallel. Items without a key (nil, which is not the same as an empty one) have
	// no order, as in Kafka, where they are spread over partitions.
	ByKey Order = iota
	// ByPartition runs everything in the order of Submit, one at a time.
	ByPartition
	// Unordered runs everything in parallel. It starts items in the order of Submit.
	Unordered
)

// LanesConfig says how [Lanes] run their items.
type LanesConfig struct {
	// Workers is the most items that run at a time. Default: [DefaultWorkers].
	Workers int
	// Order of the items. Default: [ByKey].
	Order Order
	// Batch is the most items of one call of the process function of [NewBatchLanes].
	// Default: 1.
	Batch int
	// OnStop, if set, is called once, with the error of the first [Stop] verdict, from
	// the goroutine that gave it. It may be a [context.CancelCauseFunc] that ends the
	// intake. It is not called for Drain and Close, nor when the context ends.
	OnStop func(error)
}

// Lanes run items: those of one key one after the other and in order, those of
// different keys side by side, at most Workers at a time.
//
// Every key has its own queue, and workers take turns over the keys that are ready. A
// key whose head waits (its backoff, or the same message in flight elsewhere) is
// parked with a timer and gives its worker back, so it holds up nobody but itself.
// Hashing keys over a fixed set of goroutines would be simpler, and would let one key
// in a retry stop every key that shares its goroutine. A process function that blocks
// inside, however, holds its worker.
//
// There are no idle goroutines: a worker is started when there is something to run
// and ends when there is nothing. Queues are not bounded here, so that Submit never
// blocks the reader; a [Gate] bounds what is in flight. All methods are safe for
// concurrent use. Lanes are ended by [Lanes.Drain] or [Lanes.Close], and only once.
type Lanes[T any] struct {
	process func(context.Context, []Task[T])
	alone   func(T) bool
	workers int
	batch   int
	order   Order
	onStop  func(error)

	// ctx is the process functions', not that of a call: they outlive the Submit that
	// brought their item, and it is Drain that ends them.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	byKey    map[string]*lane[T]
	all      laneList[T]
	ready    ring[*lane[T]]
	free     []*lane[T] // empty lanes for reuse
	items    int        // submitted, neither finished nor handed back
	parked   int        // lanes whose head waits for its timer
	active   int        // workers
	open     int        // items in process, or not settled after it
	err      error      // of the first Stop
	draining bool
	idle     chan struct{} // closed when active and open reach zero, if somebody waits
}

// NewLanes returns empty lanes that run items one by one with process, which gets a
// context derived from ctx. It starts no goroutine. It returns an error that names what is
// wrong: a nil process, a negative Workers or Batch, an Order that does not exist.
//
// When ctx ends, running items see it and nothing more is started. So ctx should
// outlive the claim: a session's context ends when a rebalance begins, and would cut
// off exactly the handlers that Drain lets finish. [context.WithoutCancel] of it
// keeps its values.
func NewLanes[T any](ctx context.Context, cfg LanesConfig,
	process func(context.Context, T) Verdict) (*Lanes[T], error) {
	if process == nil {
		return nil, errNoProcess
	}
	cfg.Batch = 1
	return NewBatchLanes(ctx, cfg, func(ctx context.Context, tasks []Task[T]) {
		tasks[0].Settle(process(ctx, tasks[0].Item))
	}, nil)
}

// NewBatchLanes is [NewLanes] for a process function that takes up to Batch items which
// may run now, those of one key in their order. Each must be settled, exactly once, before
// process returns or at any time after it: until then its key waits, but not its worker.
// The slice is process's until it returns: in the place of a task that it has handed over it
// leaves the zero Task, for what is left when it ends its goroutine is settled for it. An
// item for which alone is true gets a call to itself; nil: none does.
func NewBatchLanes[T any](ctx context.Context, cfg LanesConfig,
	process func(context.Context, []Task[T]), alone func(T) bool) (*Lanes[T], error) {
	switch {
	case process == nil:
		return nil, errNoProcess
	case cfg.Workers < 0:
		return nil, fmt.Errorf("flow: Workers is negative: %d", cfg.Workers)
	case cfg.Batch < 0:
		return nil, fmt.Errorf("flow: Batch is negative: %d", cfg.Batch)
	case cfg.Order > Unordered:
		return nil, fmt.Errorf("flow: unknown Order %d", cfg.Order)
	}
	if cfg.Workers == 0 {
		cfg.Workers = DefaultWorkers
	}
	l := &Lanes[T]{
		process: process, alone: alone, workers: cfg.Workers, batch: max(cfg.Batch, 1),
		order: cfg.Order, onStop: cfg.OnStop, byKey: make(map[string]*lane[T]),
	}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l, nil
}

var errNoProcess = errors.New("flow: Lanes need a process function")

// Task is an item that is to be run.
type Task[T any] struct {
	Item T
	l    *Lanes[T]
	lane *lane[T]
	at   int // in lane.run
}

// Settle says what became of the item. It must be called exactly once.
func (t Task[T]) Settle(v Verdict) { t.l.settleAll([]Task[T]{t}, []Verdict{v}) }

// SettleAll settles tasks of one Lanes, each with the verdict at its place, and is cheaper
// than one after the other.
func SettleAll[T any](tasks []Task[T], verdicts []Verdict) {
	if len(tasks) > 0 {
		tasks[0].l.settleAll(tasks, verdicts)
	}
}

// Submit queues item behind those of its key. It never blocks. The key is copied and
// is only looked at in ByKey order. It returns [ErrStopped] after a Stop verdict,
// after Drain or Close, and when the context has ended; the item is then the
// caller's.
func (l *Lanes[T]) Submit(key []byte, item T) error {
	return l.SubmitAll([]T{item}, func(T) []byte { return key })
}

// SubmitAll is [Lanes.Submit] of each item, in order; all are taken or none.
func (l *Lanes[T]) SubmitAll(items []T, key func(T) []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped() {
		return ErrStopped
	}
	for _, item := range items {
		l.submit(key(item), item)
	}
	return nil
}

func (l *Lanes[T]) submit(key []byte, item T) {
	lane := l.laneOf(key)
	lane.items.push(item)
	l.items++
	if lane.state == laneIdle {
		l.makeReady(lane)
	}
}

// Context returns the context of the process functions. It ends when Drain has waited long
// enough.
func (l *Lanes[T]) Context() context.Context { return l.ctx }

// Err returns the error of the first [Stop] verdict, or nil.
func (l *Lanes[T]) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// LaneStats is what [Lanes] hold at one moment.
type LaneStats struct {
	// Items were submitted and are neither finished nor handed back.
	Items int
	// Keys have at least one item; without an order every item is a key.
	Keys int
	// Running is the number of workers, each with a batch.
	Running int
	// Parked keys wait for the delay of a [RetryAfter].
	Parked int
}

// Stats returns a consistent reading for metrics. It visits no queue.
func (l *Lanes[T]) Stats() LaneStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return LaneStats{Items: l.items, Keys: l.all.len, Running: l.active, Parked: l.parked}
}

// stopped reports whether nothing may be started any more.
func (l *Lanes[T]) stopped() bool {
	return l.draining || l.err != nil || l.ctx.Err() != nil
}

// makeReady puts a lane with items behind those that are ready, and starts a worker
// for it if one may be started.
func (l *Lanes[T]) makeReady(lane *lane[T]) {
	lane.state = laneReady
	l.ready.push(lane)
	if l.active < l.workers && !l.stopped() {
		l.active++
		go l.work()
	}
}

// park keeps a lane from running for d.
func (l *Lanes[T]) park(lane *lane[T], d time.Duration) {
	lane.state = laneParked
	l.parked++
	if lane.timer == nil {
		lane.timer = time.AfterFunc(d, func() { l.unpark(lane) })
		return
	}
	lane.timer.Reset(d)
}

// unpark runs when a lane's timer fires. The state tells a lane that still waits from
// one that Drain emptied while the timer's goroutine was waiting for the lock. A lane
// reused since cannot be met: only unpark itself lets a parked lane run and get empty.
func (l *Lanes[T]) unpark(lane *lane[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lane.state != laneParked {
		return
	}
	l.parked--
	l.makeReady(lane)
}
