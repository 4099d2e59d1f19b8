package harness

import (
	"slices"
	"time"
)

// Median returns the middle of v, the mean of the middle two when there are two, and 0 of
// nothing. It does not change v.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Paired returns a[i]/b[i] of every round that both have. A round in which b is 0 has no
// ratio and is left out.
func Paired(a, b []float64) []float64 {
	ratios := make([]float64, 0, min(len(a), len(b)))
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return ratios
}

// Spread returns the smallest and the largest of v, zeros of nothing.
func Spread(v []float64) [2]float64 {
	if len(v) == 0 {
		return [2]float64{}
	}
	return [2]float64{slices.Min(v), slices.Max(v)}
}

// Percentile returns the smallest duration that at least share (0 to 1) of sorted do not
// exceed: the nearest-rank definition. Of nothing it returns 0.
func Percentile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(share*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}
