package harness

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

var (
	keyRun  = uint64(time.Now().UnixNano())
	keyNext atomic.Uint64
)

// FreshKeys returns n keys that were never used before, in the form of a UUID (36 bytes).
func FreshKeys(n int) []string {
	first := keyNext.Add(uint64(n)) - uint64(n)
	keys := make([]string, n)
	for i := range keys {
		id := first + uint64(i)
		low := (id ^ keyRun) * 0x9e3779b97f4a7c15 // odd, so distinct ids stay distinct
		keys[i] = fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", uint32(low>>32), uint16(low>>16),
			uint16(low), uint16(keyRun>>48), keyRun&0xffffffffffff)
	}
	return keys
}

// Fresh returns one such key, for a name that nobody else uses.
func Fresh() string { return FreshKeys(1)[0] }

// recentSpan is how far back a duplicate lies at most.
const recentSpan = 10_000

// Recent returns n keys of which share per cent repeat one that came at least gap before, so
// that it is finished. The first gap keys are new.
func Recent(n, share, gap int) []string {
	keys := FreshKeys(n)
	for i := gap; i < n; i++ {
		if rand.IntN(100) < share {
			keys[i] = keys[i-gap-rand.IntN(min(i-gap+1, recentSpan))]
		}
	}
	return keys
}

// Short is a number as people write it: 10 k, 2 M.
func Short(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%d M", n/1_000_000)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%d k", n/1000)
	default:
		return fmt.Sprint(n)
	}
}
