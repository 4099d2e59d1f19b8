package bloom

import (
	"math"
	"time"
)

// table is all that a Check reads, in one piece: it is never changed, only replaced under
// Filter.mu. So an answer never mixes the bits of one moment with the coverage of another.
type table struct {
	newest  int64
	ends    time.Duration // the newest, by Options.Clock
	gens    []*generation // of newest-len+1 to newest
	covered uint64        // bit i: every mark of gens[i] was fed
	// a live Feed was opened: a generation that begins from here on is covered from its start
	fed       bool
	before    Reason // why there is no coverage while it is not fed
	saturated bool
	until     instant // Check may say New before this
	through   instant // every mark that was committed before this was fed; zero: none
}

// instant is a time on both clocks of this process. The monotonic clock stands while the machine is
// suspended, and the wall clock can be set back. A time is over as soon as one of them says so.
type instant struct {
	mono time.Duration // since the filter was made
	wall int64         // ns since 1970
}

func (f *Filter) instant(at time.Time) instant {
	return instant{mono: at.Sub(f.born), wall: at.UnixNano()}
}

func (i instant) before(other instant) bool { return i.mono < other.mono && i.wall < other.wall }

// since returns the longer of the times that have passed on both clocks.
func (i instant) since(earlier instant) time.Duration {
	return max(i.mono-earlier.mono, time.Duration(i.wall-earlier.wall))
}

func (t *table) oldest() int64 { return t.newest - int64(len(t.gens)) + 1 }

// gen returns the generation of that index, nil when it is not alive.
func (t *table) gen(index int64) *generation {
	if index < t.oldest() || index > t.newest {
		return nil
	}
	return t.gens[index-t.oldest()]
}

func (t *table) last() *generation { return t.gens[len(t.gens)-1] }

func (t *table) full() uint64 { return 1<<len(t.gens) - 1 }

// moved returns the table with index as its newest generation. A generation that begins while a
// feed is open is covered from its first mark on. A generation that falls out of the window takes
// its bits and its coverage with it.
func (f *Filter) moved(t *table, index int64) *table {
	next := *t
	next.newest, next.ends = index, f.end(index)
	next.gens = make([]*generation, len(t.gens))
	for i := range next.gens {
		at := next.oldest() + int64(i)
		if next.gens[i] = t.gen(at); next.gens[i] == nil {
			next.gens[i] = &generation{index: at}
		}
	}
	shift := uint64(min(index-t.newest, int64(len(t.gens))))
	next.covered = t.covered >> shift
	if t.fed {
		next.covered |= t.full() &^ (t.full() >> shift)
	}
	return &next
}

// end returns when a generation is over: never, if a Duration cannot hold that time.
func (f *Filter) end(index int64) time.Duration {
	if index >= math.MaxInt64/int64(f.slice) {
		return math.MaxInt64
	}
	return time.Duration(index+1) * f.slice
}

// reason returns why no id can be New, apart from the time given to Feed.Open.
func (t *table) reason() Reason {
	switch {
	case !t.fed:
		return t.before
	case t.covered != t.full():
		return NotCovered
	default:
		return None
	}
}

func (t *table) has(d digest) bool {
	m := d.mask()
	for i := len(t.gens) - 1; i >= 0; i-- {
		if t.gens[i].has(d, &m) {
			return true
		}
	}
	return false
}

// estimated returns the rate of false positives over all generations.
func (t *table) estimated() float64 {
	passes := 1.0
	for _, g := range t.gens {
		passes *= 1 - g.estimated()
	}
	return 1 - passes
}
