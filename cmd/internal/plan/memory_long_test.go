//go:build long

package plan

import (
	"testing"

	"github.com/onceward/onceward/redisadapter"
)

// TestMemoryOfAMillion fills a server with a million keys for each layout.
func TestMemoryOfAMillion(t *testing.T) {
	for _, f := range []filling{
		{layout: redisadapter.Full}, {layout: redisadapter.Full, result: 100},
		{layout: redisadapter.Compact},
	} {
		t.Run(f.String(), func(t *testing.T) { compareMemory(t, f, 1_000_000) })
	}
}
