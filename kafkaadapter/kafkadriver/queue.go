package kafkadriver

import (
	"bytes"
	"context"
	"math"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// pending is the queue between intake and claimer.
type pending struct {
	mu    sync.Mutex
	items []*item
	ready chan struct{} // holds one when items may have come
}

func (q *pending) add(items []*item) {
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take removes up to n items, all of them for a negative n.
func (q *pending) take(n int) []*item {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n < 0 || n >= len(q.items) {
		items := q.items
		q.items = nil
		return items
	}
	items := q.items[:n:n]
	q.items = q.items[n:]
	return items
}

// putBack returns items to the front.
func (q *pending) putBack(items []*item) {
	if len(items) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = append(items[:len(items):len(items)], q.items...)
}

// next waits for items and takes up to n.
func (q *pending) next(ctx context.Context, n int) ([]*item, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if items := q.take(n); len(items) > 0 {
			return items, nil
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
		}
	}
}

// queued are the messages of the queues that hold a claim and have not had their turn.
// Whoever takes such a claim away, to begin or to give it back, does so under the lock.
//
// They are known so that they can be given back by a message that waits in front of
// them. Without that, two partitions could wait for each other forever: A waits for a
// key that B holds behind a message which waits for a key that A holds behind its own.
type queued struct {
	mu    sync.Mutex
	first *item // of a list through item.next
	len   int
	fewer chan struct{} // closed when one leaves; nil while nobody waits for that
}

// room waits until fewer than limit messages hold a claim before their turn, and reports
// false when they have not become fewer for as long as patience.
//
// Each of them is renewed every third of a lease. Without a bound a backlog is claimed
// as fast as it is fetched. Then the renewals of messages that cannot run yet leave the store no
// time for the completions of those that do: nothing is lost, and nothing ends any more.
func (q *queued) room(ctx context.Context, limit int, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for least := math.MaxInt; ; {
		q.mu.Lock()
		if q.len < limit {
			q.mu.Unlock()
			return true
		}
		if q.len < least {
			// Not whenever one leaves: a message that fails, is claimed again by its worker
			// and leaves again would use up nobody's patience.
			least = q.len
			timer.Reset(patience)
		}
		if q.fewer == nil {
			q.fewer = make(chan struct{})
		}
		fewer := q.fewer
		q.mu.Unlock()
		select {
		case <-fewer:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return true // the claimer sees it, and what it holds is given back
		}
	}
}

// remove takes a message out; q.mu is held. Only one that was in tells who waits for room.
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
	if q.fewer != nil {
		close(q.fewer)
		q.fewer = nil
	}
}

// add notes a message whose claim was won before its turn, and reports whether it holds
// one.
func (q *queued) add(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
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

// begin ends the queueing of a message: its turn has come.
func (q *queued) begin(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(it)
}

// take takes the claim of a message that does not run, nil if it holds none.
func (q *queued) take(it *item) *dedup.Claim {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(it)
	c := it.claim
	it.claim = nil
	return c
}

// takeUnbegun is take of a message that is in the queue still.
func (q *queued) takeUnbegun(it *item) *dedup.Claim {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !it.queued {
		return nil
	}
	q.remove(it)
	c := it.claim
	it.claim = nil
	return c
}

// takeBehind takes the claims of all that cannot run before the message at the head of
// its queue. It returns those messages too.
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
		q.remove(it)
		behind, claims = append(behind, it), append(claims, it.claim)
		it.claim = nil
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
