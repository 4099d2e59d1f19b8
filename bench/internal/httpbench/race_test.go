//go:build race

package httpbench

// mostAllocs is larger here, because under the race detector a sync.Pool drops some of its objects.
const mostAllocs = 4
