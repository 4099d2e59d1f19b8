//go:build !race

package httpbench

// mostAllocs is how many a request may take of client and server together.
const mostAllocs = 1
