//go:build race

package httpbench

// mostAllocs is larger here: under the race detector a sync.Pool drops a part of what it is given.
const mostAllocs = 4
