//go:build long

package owned

// loadSizes are the keys that BenchmarkLoad loads.
var loadSizes = []int{1_000_000, 10_000_000}
