package filterbench

import (
	"math/rand/v2"

	"github.com/onceward/onceward/bench/internal/harness"
)

const (
	// workers is how many batches are under way at once: two partitions of one consumer, of which
	// each has the half of a stream.
	workers = 2
	// gap is how far from its repetition a key is at least: its batch has ended, also where a batch
	// ends with the claims of the next.
	gap = 2 * batchIDs
	// recentSpan is how far it is at most, where it is recent.
	recentSpan = 8192
)

// stream says what a consumer gets.
type stream struct {
	share int  // duplicates, per cent
	old   bool // they repeat keys of long ago, and not of this stream
}

// made is a stream for one timing.
type made struct {
	keys []string // the halves of the workers, one after the other
	old  []string // what has ended before it began, in the same way
	news int      // keys that are to run
}

// make makes one of n keys, a multiple of the workers' batches, from names that nobody has used.
// Where its duplicates are is always the same.
func (s stream) make(n int) made {
	m := made{keys: harness.FreshKeys(n), news: n}
	for w := range workers {
		mine := part(m.keys, w)
		rng := rand.New(rand.NewPCG(uint64(w), uint64(s.share))) //nolint:gosec // the same for all sides
		for i := range mine {
			switch {
			case !repeats(i, s.share):
				continue
			case s.old:
				m.old = append(m.old, mine[i])
			case i < gap:
				continue
			default:
				mine[i] = mine[i-gap-rng.IntN(min(i-gap+1, recentSpan))]
			}
			m.news--
		}
	}
	return m
}

// repeats spreads the duplicates evenly.
func repeats(i, share int) bool { return share > 0 && i*share%100+share >= 100 }

// part is the half of a worker.
func part(keys []string, worker int) []string {
	half := len(keys) / workers
	return keys[worker*half : (worker+1)*half]
}
