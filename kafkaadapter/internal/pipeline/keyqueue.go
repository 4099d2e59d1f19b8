package pipeline

import (
	"cmp"
	"errors"
	"hash/maphash"
	"time"
)

// maxFreeQueues bounds how many empty queues are kept for reuse.
const maxFreeQueues = 1024

type queueState uint8

const (
	queueIdle    queueState = iota // nobody will run it: new, or stopped
	queueReady                     // in the ready queue
	queueRunning                   // some of its items were handed to the process function
	queueParked                    // its timer will make it ready
)

// keyQueue has the items of one key: those that run, and those that wait behind them. The next
// items start only after everything that runs has been settled.
type keyQueue[T any] struct {
	items ring[T]
	run   []running[T] // in order; empty unless queueRunning
	open  int          // of run, how many are not settled
	key   uint64
	keyed bool // in byKey under key
	state queueState
	timer *time.Timer // made at the first park, then reset

	prev, next *keyQueue[T] // in queueList
}

// running is an item that the process function has, or has handed to somebody else.
type running[T any] struct {
	item     T
	decision Decision // zero until it is settled
	settled  bool
}

// queueList links all queues that have items, oldest first. Drain walks it, because a queue without
// a key is not in byKey.
type queueList[T any] struct {
	first, last *keyQueue[T]
	len         int
}

func (ls *queueList[T]) push(q *keyQueue[T]) {
	q.prev, q.next = ls.last, nil
	if ls.last == nil {
		ls.first = q
	} else {
		ls.last.next = q
	}
	ls.last = q
	ls.len++
}

func (ls *queueList[T]) remove(q *keyQueue[T]) {
	if q.prev == nil {
		ls.first = q.next
	} else {
		q.prev.next = q.next
	}
	if q.next == nil {
		ls.last = q.prev
	} else {
		q.next.prev = q.prev
	}
	q.prev, q.next = nil, nil
	ls.len--
}

// keySeed is random for each process, so that nobody can choose keys that collide.
var keySeed = maphash.MakeSeed()

// queueOf returns the queue for key, an empty new one if there is none. Queues are found by the
// hashes of their keys: no copy of the key is kept, and two keys with one hash only wait for each
// other.
func (k *KeyQueues[T]) queueOf(key []byte) *keyQueue[T] {
	keyed := k.order == ByPartition || k.order == ByKey && key != nil
	if k.order == ByPartition {
		key = nil
	}
	var hash uint64
	if keyed {
		hash = maphash.Bytes(keySeed, key)
		if q := k.byKey[hash]; q != nil {
			return q
		}
	}
	q := k.newQueue()
	if keyed {
		q.key, q.keyed = hash, true
		k.byKey[hash] = q
	}
	k.all.push(q)
	return q
}

func (k *KeyQueues[T]) newQueue() *keyQueue[T] {
	last := len(k.free) - 1
	if last < 0 {
		return new(keyQueue[T])
	}
	q := k.free[last]
	k.free = k.free[:last]
	return q
}

// dropQueue forgets a queue that has become empty.
func (k *KeyQueues[T]) dropQueue(q *keyQueue[T]) {
	k.all.remove(q)
	if q.keyed {
		delete(k.byKey, q.key)
	}
	q.key, q.keyed, q.state = 0, false, queueIdle
	if len(k.free) < maxFreeQueues {
		k.free = append(k.free, q)
	}
}

// ErrNoDecision stops [KeyQueues] whose process function returned the zero [Decision], or
// ended its goroutine instead of returning.
var ErrNoDecision = errors.New("pipeline: process returned no decision")

// Decision is what a process function says about its item. Make one with [Done],
// [RetryAfter] or [Stop]; the zero Decision is a mistake and stops the queues with
// [ErrNoDecision], since forgetting to answer must not look like success.
type Decision struct {
	kind  decisionKind
	after time.Duration
	err   error
}

type decisionKind uint8

const (
	decisionNone decisionKind = iota
	decisionDone
	decisionRetry
	decisionStop
)

// Done says that the queues are finished with the item: the next one of its key may
// run. It is about order only; a [Slot] is finished by its own Done.
func Done() Decision { return Decision{kind: decisionDone} }

// RetryAfter says that the item must run again after d and stays at the head of its key until then.
// Its worker is free at once. A zero or negative d puts the key behind those that are ready now:
// the caller must add jitter to keep it from spinning.
func RetryAfter(d time.Duration) Decision { return Decision{kind: decisionRetry, after: d} }

// Stop says that nothing may be started any more, because of err: this item can
// neither be finished nor skipped. It stays unfinished and comes back from
// [KeyQueues.Drain]. A nil err stands for [ErrStopped].
func Stop(err error) Decision {
	return Decision{kind: decisionStop, err: cmp.Or(err, ErrStopped)}
}
