package bench

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// What is told of a duration is itself, or at most 1/64 more.
func TestBuckets(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 127, 128, 129, 255, 256, 1000, 1 << 20, 1<<20 + 1,
		time.Hour, 1<<63 - 1} {
		if up := upper(bucketOf(d)); up < d || float64(up) > float64(d)*(1+1.0/64)+1 {
			t.Errorf("%d is told as %d", d, up)
		}
	}
	for d := time.Duration(0); d < 1<<14; d++ {
		if b, next := bucketOf(d), bucketOf(d+1); next != b && (next != b+1 || upper(b) != d) {
			t.Fatalf("%d is in bucket %d up to %d, %d in %d", d, b, upper(b), d+1, next)
		}
	}
}

func TestQuantile(t *testing.T) {
	var h, other histogram
	if h.quantile(0.5) != 0 {
		t.Error("nothing has a quantile")
	}
	all := make([]time.Duration, 10_000)
	for i := range all {
		all[i] = time.Duration(rand.ExpFloat64() * float64(time.Millisecond)) // no secret
		if i%2 == 0 {
			h.add(all[i])
		} else {
			other.add(all[i])
		}
	}
	h.join(&other)
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.99, 0.999, 1} {
		want := all[max(int(q*float64(len(all)))-1, 0)]
		if got := h.quantile(q); got < want || float64(got) > float64(want)*1.02+2 {
			t.Errorf("quantile %g is %v, want %v", q, got, want)
		}
	}
	if h.max != all[len(all)-1] || h.n != uint64(len(all)) {
		t.Error(h.max, h.n)
	}
}
