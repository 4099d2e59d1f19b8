package dedup

import (
	"container/heap"
	"math"
	"time"
)

// renewQueue orders kept claims by when to look at them. All leases are equally long, so
// claims are due in the order in which they came. Most end before their first renewal, and cost
// no more than the links of a list. The others are in a heap.
type renewQueue struct {
	first, last *keptClaim // the list of new claims
	heap        keptHeap
}

// never is when to look at a claim that needs no renewal.
const never = time.Duration(math.MaxInt64)

// push adds k. It may be looked at up to slack later than k.next: concurrent callers come a
// little out of order, and the list should take them all.
func (q *renewQueue) push(k *keptClaim, slack time.Duration) {
	last := q.last
	if k.next == never || last != nil && last.next-k.next > slack {
		heap.Push(&q.heap, k)
		return
	}
	k.index, k.prior, q.last = -1, last, k
	if last == nil {
		q.first = k
		return
	}
	k.next = max(k.next, last.next)
	last.after = k
}

// move changes the time at which to look at k.
func (q *renewQueue) move(k *keptClaim, next time.Duration) {
	k.next = next
	if k.index >= 0 {
		heap.Fix(&q.heap, int(k.index))
		return
	}
	q.remove(k)
	heap.Push(&q.heap, k)
}

func (q *renewQueue) remove(k *keptClaim) {
	if k.index >= 0 {
		heap.Remove(&q.heap, int(k.index))
		return
	}
	before, behind := &q.first, &q.last
	if k.prior != nil {
		before = &k.prior.after
	}
	if k.after != nil {
		behind = &k.after.prior
	}
	*before, *behind = k.after, k.prior
	k.prior, k.after = nil, nil
}

// head returns the claim that is due first, or nil.
func (q *renewQueue) head() *keptClaim {
	if len(q.heap) > 0 && (q.first == nil || q.heap[0].next < q.first.next) {
		return q.heap[0]
	}
	return q.first
}

func (q *renewQueue) all() []*keptClaim {
	all := append([]*keptClaim(nil), q.heap...)
	for k := q.first; k != nil; k = k.after {
		all = append(all, k)
	}
	return all
}

// keptHeap is a heap of claims by when to look at them.
type keptHeap []*keptClaim

func (h keptHeap) Len() int           { return len(h) }
func (h keptHeap) Less(i, j int) bool { return h[i].next < h[j].next }
func (h keptHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = int32(i), int32(j) //nolint:gosec // claims in memory
}

func (h *keptHeap) Push(x any) {
	k := x.(*keptClaim)      //nolint:errcheck // only a renewQueue pushes
	k.index = int32(len(*h)) //nolint:gosec // as above
	*h = append(*h, k)
}

func (h *keptHeap) Pop() any {
	old := *h
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return k
}
