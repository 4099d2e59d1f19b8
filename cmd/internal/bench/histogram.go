package bench

import (
	"math/bits"
	"time"
)

const (
	// halves is how many buckets an octave has, as a power of two: what is told of a duration is at
	// most 1/64 above it.
	halves  = 6
	buckets = (64 - halves + 1) << halves
)

// histogram counts durations. It is for one goroutine.
type histogram struct {
	counts [buckets]uint64
	n      uint64
	max    time.Duration
}

// bucketOf is exact below 128 ns, and has 64 buckets for each doubling above.
func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-halves-1, 0)
	return shift<<halves + int(v>>shift) // below 128
}

// upper is the largest duration of a bucket.
func upper(bucket int) time.Duration {
	shift := max(bucket>>halves-1, 0)
	return time.Duration(bucket-shift<<halves+1)<<shift - 1
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.n++
	h.max = max(h.max, d)
}

func (h *histogram) join(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.n += other.n
	h.max = max(h.max, other.max)
}

// quantile is the duration that a share q of all do not exceed, zero where there is none.
func (h *histogram) quantile(q float64) time.Duration {
	var seen uint64
	for i, n := range h.counts {
		if seen += n; n > 0 && float64(seen) >= q*float64(h.n) {
			return min(upper(i), h.max)
		}
	}
	return h.max
}
