package workload

import (
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// layout is a way in which our store keeps its records.
type layout struct {
	name    string
	options redisadapter.Options
	config  func(*dedup.Config) // what the Deduper has to know of it; nil: nothing
}

// The configurations that take part. A new one needs a line here. The first is the one that
// runs where a family has room for one only.
var layouts = []layout{
	{"onceward seen-only", redisadapter.Options{Layout: redisadapter.SeenOnly}, func(c *dedup.Config) { c.SeenOnly = true }},
	{"onceward rich", redisadapter.Options{Layout: redisadapter.Rich}, nil},
}

// rich is the layout that keeps results.
func rich() layout { return layouts[1] }

// cached is the in-process cache of finished keys, with room for all keys of a stream.
func cached(c *dedup.Config) { c.CacheBytes = 32 << 20 }
