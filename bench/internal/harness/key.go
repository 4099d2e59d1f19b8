package harness

import (
	"fmt"
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
		keys[i] = fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", uint32(low>>32), uint16(low>>16), uint16(low), uint16(keyRun>>48), keyRun&0xffffffffffff)
	}
	return keys
}
