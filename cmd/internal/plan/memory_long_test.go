//go:build long

package plan

import (
	"testing"

	"github.com/onceward/onceward/redisadapter"
)

// TestMemoryOfAMillion fills a server with a million keys for each layout.
func TestMemoryOfAMillion(t *testing.T) {
	for _, f := range []filling{
		{layout: redisadapter.Rich}, {layout: redisadapter.Rich, result: 100},
		{layout: redisadapter.SeenOnly},
		{layout: redisadapter.Compact}, {layout: redisadapter.Mixed},
		{layout: redisadapter.Mixed, result: 100},
	} {
		t.Run(f.String(), func(t *testing.T) { compareMemory(t, f, 1_000_000) })
	}
}
