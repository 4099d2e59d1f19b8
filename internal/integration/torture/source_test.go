package torture_test

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// item is one delivery of a message, repeated until it is acknowledged.
type item struct {
	id      uint64
	message uint32
	number  uint32 // of the current try; later tries have other numbers
	tries   int    // that were refused
	due     int64
}

// source delivers every message a number of times, and repeats each delivery until it is
// acknowledged.
type source struct {
	rng     *rand.Rand
	fresh   []*item // in the order of the seed
	again   later
	out     map[uint64]*item // delivered, and not answered
	numbers []uint32         // deliveries of each message
	given   int
}

// later are deliveries that are to be repeated, the next one first.
type later []*item

func (l later) Len() int           { return len(l) }
func (l later) Less(i, j int) bool { return l[i].due < l[j].due }
func (l later) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }

// Push implements heap.Interface.
func (l *later) Push(x any) { *l = append(*l, x.(*item)) }

// Pop implements heap.Interface.
func (l *later) Pop() any {
	x := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return x
}

// newSource orders the deliveries: those of a message close to each other, or far apart.
func newSource(seed uint64, messages, times int) *source {
	s := &source{rng: rand.New(rand.NewPCG(seed, 2)), out: map[uint64]*item{},
		numbers: make([]uint32, messages)}
	type sending struct {
		at float64
		*item
	}
	var all []sending
	for m := range messages {
		at := float64(m)
		for range times {
			all = append(all, sending{at, &item{id: uint64(len(all) + 1), message: uint32(m)}})
			at += s.rng.Float64() * []float64{2, 100, float64(messages)}[s.rng.IntN(3)]
		}
	}
	slices.SortStableFunc(all, func(a, b sending) int {
		if a.at < b.at {
			return -1
		}
		return 1
	})
	for _, a := range all {
		s.fresh = append(s.fresh, a.item)
	}
	return s
}

// next returns the item to deliver now, or nil.
func (s *source) next(at int64) *item {
	var i *item
	switch {
	case len(s.again) > 0 && s.again[0].due <= at:
		i, _ = heap.Pop(&s.again).(*item)
	case len(s.fresh) > 0 && len(s.again) < 200: // too many are waiting already
		i, s.fresh = s.fresh[0], s.fresh[1:]
	default:
		return nil
	}
	s.numbers[i.message]++
	i.number = s.numbers[i.message]
	s.out[i.id] = i
	s.given++
	return i
}

// acked records that a delivery was acknowledged.
func (s *source) acked(id uint64) { delete(s.out, id) }

// refused schedules a delivery again after a delay that grows up to a small limit.
func (s *source) refused(id uint64) {
	i := s.out[id]
	if i == nil {
		return
	}
	delete(s.out, id)
	longest := min(10<<min(i.tries, 3), 60)
	i.tries++
	i.due = now() + int64(time.Duration(5+s.rng.IntN(longest))*time.Millisecond)
	heap.Push(&s.again, i)
}

// left is how many deliveries are not acknowledged.
func (s *source) left() int { return len(s.fresh) + len(s.again) + len(s.out) }
