//go:build !race

package httpbench

// mostAllocs is the largest number of allocations of a request, by client and server together.
const mostAllocs = 1
