//go:build !long

package owned

// loadSizes are the keys that BenchmarkLoad loads.
var loadSizes = []int{100_000, 1_000_000}
