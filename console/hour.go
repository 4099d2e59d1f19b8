package console

import (
	"time"

	"github.com/onceward/onceward/dedup"
)

// minute holds the counts of one minute.
type minute struct {
	outcome [outcomes]uint64
	cause   [causes]uint64
}

// hour holds the counts of some sources in the last sixty minutes. The last minute is the running
// one.
type hour struct {
	minutes [minutes]minute
	total   minute
	age     [ageBins + 1]uint64
	tally   [tallies]uint64
	oldest  int64 // in millionths of the window
}

// add reads what a source has counted.
func (h *hour) add(s *source) {
	now := s.now()
	for i := range s.ring {
		b := s.ring[i].Load()
		if b == nil || b.minute > now || now-b.minute >= minutes {
			continue
		}
		m := &h.minutes[minutes-1-(now-b.minute)]
		for o := range m.outcome {
			n := b.outcome[o].Load()
			m.outcome[o] += n
			h.total.outcome[o] += n
		}
		for c := range m.cause {
			n := b.cause[c].Load()
			m.cause[c] += n
			h.total.cause[c] += n
		}
		for a := range h.age {
			h.age[a] += b.age[a].Load()
		}
		for t := range h.tally {
			h.tally[t] += b.tally[t].Load()
		}
		h.oldest = max(h.oldest, b.oldest.Load())
	}
}

func (h *hour) claims() (n uint64) {
	for _, of := range h.total.outcome {
		n += of
	}
	return n
}

func (h *hour) duplicates() uint64 { return h.total.outcome[dedup.Duplicate] }

// aged returns how many duplicates have a known age, and how many of these are at least from/20 of
// their window old.
func (h *hour) aged(from int) (all, old uint64) {
	for bin, n := range h.age {
		all += n
		if bin >= from {
			old += n
		}
	}
	return all, old
}

// counted returns the sources in the order in which they came.
func (c *Console) counted() []*source {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := append([]*source(nil), c.sources...)
	if c.others != nil {
		all = append(all, c.others)
	}
	return all
}

// oldestOf returns the age of the oldest duplicate, if all sources have the same window.
func oldestOf(window time.Duration, share int64) time.Duration {
	return time.Duration(float64(window) * float64(share) / million)
}
