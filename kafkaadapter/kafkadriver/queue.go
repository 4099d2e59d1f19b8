package kafkadriver

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// pending is the queue between intake and claimer.
type pending struct {
	mu    sync.Mutex
	items []*item
	head  int           // those before it are taken
	ready chan struct{} // holds one when items may have come
}

func (q *pending) add(items []*item) {
	q.mu.Lock()
	if len(q.items)+len(items) > cap(q.items) && q.head >= len(q.items)/2 {
		q.items, q.head = slices.Delete(q.items, 0, q.head), 0
	}
	q.items = append(q.items, items...)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take removes up to n items, all of them for a negative n, and appends them to to.
func (q *pending) take(n int, to []*item) []*item {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.items[q.head:]
	if n >= 0 && n < len(left) {
		left = left[:n]
	}
	to = append(to, left...)
	clear(left)
	if q.head += len(left); q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return to
}

// putBack returns items to the front.
func (q *pending) putBack(items []*item) {
	if len(items) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items, q.head = append(slices.Clone(items), q.items[q.head:]...), 0
}

// next waits for items and takes up to n, which it appends to to.
func (q *pending) next(ctx context.Context, n int, to []*item) ([]*item, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if to = q.take(n, to); len(to) > 0 {
			return to, nil
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
		}
	}
}

// queued are the messages in the queues that hold a claim and have not had their turn. Whoever
// takes such a claim, to begin or to give it back, holds the lock.
//
// The list exists so that a message that waits can give back the claims behind it. Without that,
// two partitions could wait for each other forever. A message at the head of A waits for a key
// whose claim B holds further back, and the message at the head of B waits for a key whose claim A
// holds further back.
type queued struct {
	mu    sync.Mutex
	first *item // of a list through item.next
	len   int

	// While the claimer waits for room:
	limit   int           // len must fall below it; zero: nobody waits
	least   int           // the lowest len since the wait began
	shrunk  bool          // least has fallen since the last look
	hasRoom chan struct{} // holds one when there is room
}

// room waits until fewer than limit messages hold a claim before their turn. It reports false when
// their number has not fallen for as long as patience, or up to twice that. Only one goroutine may
// call it.
//
// The claim of each such message is renewed every third of a lease. Without a bound a backlog is
// claimed as fast as it is fetched. Then the renewals of messages that cannot run yet leave the
// store no time for the completions of those that do: nothing is lost, and nothing ends any more.
func (q *queued) room(ctx context.Context, limit int, patience time.Duration) bool {
	if !q.isFull(limit) {
		return true
	}
	defer q.stopWaiting()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-q.hasRoom:
			return true
		case <-timer.C:
			if !q.hasShrunk() {
				return false
			}
			timer.Reset(patience)
		case <-ctx.Done():
			return true // the claimer sees it, and gives back what it holds
		}
	}
}

// isFull reports whether there is no room. If so, whoever makes room sends to q.hasRoom.
func (q *queued) isFull(limit int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.len < limit {
		return false
	}
	q.limit, q.least, q.shrunk, q.hasRoom = limit, q.len, false, make(chan struct{}, 1)
	return true
}

func (q *queued) stopWaiting() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limit = 0
}

// hasShrunk reports whether fewer messages are left than at any time before the last call. It is
// not enough that one has left: a message that fails, is claimed again by its worker and leaves
// again would keep the wait going without any progress.
func (q *queued) hasShrunk() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	shrunk := q.shrunk
	q.shrunk = false
	return shrunk
}

// remove takes a message out; q.mu is held. It wakes the claimer once, when there is room: waking
// it for each message that leaves would cost as much as the message.
func (q *queued) remove(it *item) {
	if !it.queued {
		return
	}
	it.queued = false
	q.len--
	if it.next != nil {
		it.next.prior = it.prior
	}
	if it.prior != nil {
		it.prior.next = it.next
	} else {
		q.first = it.next
	}
	it.prior, it.next = nil, nil
	if q.limit == 0 || q.len >= q.least {
		return
	}
	q.least, q.shrunk = q.len, true
	if q.len < q.limit {
		q.limit = 0
		q.hasRoom <- struct{}{}
	}
}

// add adds a message whose claim was won before its turn, and reports whether it holds a claim.
func (q *queued) add(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.enter(it)
}

// addAll does what add does, for many messages.
func (q *queued) addAll(items []*item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range items {
		q.enter(it)
	}
}

// enter does what add does; q.mu is held.
func (q *queued) enter(it *item) bool {
	if it.claim == nil {
		return false
	}
	if !it.queued {
		it.queued, it.next = true, q.first
		if q.first != nil {
			q.first.prior = it
		}
		q.first = it
		q.len++
	}
	return true
}

// begin takes a message out of the list: its turn has come.
func (q *queued) begin(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(it)
}

// take takes away the claim of a message that does not run, and returns it, or nil if there is
// none.
func (q *queued) take(it *item) *dedup.Claim {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.takeClaim(it)
}

// takeUnbegun does what take does, but only for a message that is still in the list.
func (q *queued) takeUnbegun(it *item) *dedup.Claim {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !it.queued {
		return nil
	}
	return q.takeClaim(it)
}

// takeClaim does what take does; q.mu is held.
func (q *queued) takeClaim(it *item) *dedup.Claim {
	q.remove(it)
	c := it.claim
	it.claim = nil
	return c
}

// takeBehind takes the claims of all messages that wait for the one at the head of their queue. It
// returns those messages too.
func (q *queued) takeBehind(head *item, order pipeline.Order) (behind []*item,
	claims []*dedup.Claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for next := q.first; next != nil; {
		it := next
		next = it.next // which remove forgets
		if !sameQueue(it, head, order) {
			continue
		}
		behind, claims = append(behind, it), append(claims, q.takeClaim(it))
	}
	return behind, claims
}

func sameQueue(a, b *item, order pipeline.Order) bool {
	switch order {
	case pipeline.ByPartition:
		return true
	case pipeline.ByKey:
		key := queueKey(a)
		return key != nil && bytes.Equal(key, queueKey(b))
	default:
		return false
	}
}
