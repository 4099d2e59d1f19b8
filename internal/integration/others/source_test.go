package others_test

import (
	"math/rand/v2"
	"slices"
	"time"
)

// item is one copy of a message, repeated until it is acknowledged.
type item struct {
	id      uint64
	message uint32
	acked   bool
	after   *item // must be acknowledged before this one is delivered, or nil
	due     time.Time
}

// order says where the copies of a message are in the stream.
type order uint8

const (
	together order = iota // one after the other
	// when everything else has been delivered, and the previous copy is acknowledged
	afterwards
	scattered // within the next forty messages
)

// source delivers copies at least once.
type source struct {
	rng   *rand.Rand
	fresh []*item
	again []*item
	left  int // copies that are not acknowledged
	given int
}

func newSource(seed uint64, messages, copies int, o order) *source {
	s := &source{rng: rand.New(rand.NewPCG(seed, 1))}
	type scheduled struct {
		at float64
		*item
	}
	var all []scheduled
	for m := range messages {
		var before *item
		for c := range copies {
			at := float64(m)
			it := &item{id: uint64(len(all) + 1), message: uint32(m)}
			switch {
			case c == 0 || o == together:
			case o == afterwards:
				at += float64(c * messages)
				it.after = before
			case o == scattered:
				at += s.rng.Float64() * 40
				it.after = before
			}
			all = append(all, scheduled{at, it})
			before = it
		}
	}
	slices.SortStableFunc(all, func(a, b scheduled) int {
		if a.at < b.at {
			return -1
		}
		if a.at > b.at {
			return 1
		}
		return 0
	})
	for _, p := range all {
		s.fresh = append(s.fresh, p.item)
	}
	s.left = len(s.fresh)
	return s
}

// next returns the item to deliver now, or nil. It gives no new item while 300 copies wait to be
// repeated.
func (s *source) next(now time.Time) *item {
	for i, it := range s.again {
		if it.acked || now.After(it.due) {
			s.again = slices.Delete(s.again, i, i+1)
			if it.acked {
				return s.next(now)
			}
			s.given++
			return it
		}
	}
	if len(s.again) >= 300 {
		return nil
	}
	at := slices.IndexFunc(s.fresh, func(it *item) bool {
		return it.after == nil || it.after.acked
	})
	if at < 0 {
		return nil
	}
	it := s.fresh[at]
	s.fresh = slices.Delete(s.fresh, at, at+1)
	s.given++
	return it
}

// acked records that a copy was acknowledged, and reports whether that is new.
func (s *source) acked(it *item) bool {
	if it.acked {
		return false
	}
	it.acked = true
	s.left--
	return true
}

// refused delivers a copy again later.
func (s *source) refused(it *item) {
	if !it.acked {
		it.due = time.Now().Add(time.Duration(20+s.rng.IntN(30)) * time.Millisecond)
		s.again = append(s.again, it)
	}
}
