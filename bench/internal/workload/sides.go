package workload

import (
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// layout is a way in which our store keeps its records.
type layout struct {
	name   string
	kind   redisadapter.Layout
	config func(*dedup.Config) // what the Deduper has to know of it; nil: nothing
	// expected is how many keys end within a window; layouts with buckets are planned by it.
	expected int
	// extra says that the goals of speed are not about it: they are about the layouts that
	// keep a record per key.
	extra bool
}

// The configurations that take part. A new one needs a line here. The first is the one that
// runs where a family has room for one only.
var layouts = []layout{
	{name: "onceward seen-only", kind: redisadapter.SeenOnly, config: seenOnly},
	{name: "onceward rich", kind: redisadapter.Rich},
	{name: "onceward compact", kind: redisadapter.Compact, config: seenOnly, expected: someKeys, extra: true},
	{name: "onceward mixed", kind: redisadapter.Mixed, expected: someKeys, extra: true},
}

// someKeys is about how many keys the timings of one group add: buckets are as full as they
// are planned to be when it ends.
const someKeys = 200_000

// lookup returns the layout of a kind.
func lookup(kind redisadapter.Layout) layout {
	return layouts[slices.IndexFunc(layouts, func(l layout) bool { return l.kind == kind })]
}

// rich is the layout that keeps results, plain the one that completes with one command, and
// compact the one that takes the least memory.
func rich() layout    { return lookup(redisadapter.Rich) }
func plain() layout   { return lookup(redisadapter.SeenOnly) }
func compact() layout { return lookup(redisadapter.Compact) }

// others are the layouts without those kinds, where families have no room for all.
func others(kinds ...redisadapter.Layout) []layout {
	return slices.DeleteFunc(slices.Clone(layouts), func(l layout) bool { return slices.Contains(kinds, l.kind) })
}

// expecting plans buckets for n keys; layouts without take no notice.
func (l layout) expecting(n int) layout {
	if l.expected > 0 {
		l.expected = n
	}
	return l
}

// options of the store of a Deduper with that window.
func (l layout) options(window time.Duration) redisadapter.Options {
	o := redisadapter.Options{
		Layout: l.kind,
		// A prefix has one layout. These are as long as the default one, or keys would be larger.
		Prefix:    fmt.Sprint("o", int(l.kind)),
		OnFinding: func(redisadapter.Finding) {}, // a server without persistence is what is wanted here
	}
	if l.expected > 0 {
		o.Secret, o.Window, o.ExpectedKeys = []byte("secret of the benchmarks"), window, l.expected
		// Nor are buckets planned twice under one.
		o.Prefix += strconv.FormatUint(uint64(crc32.ChecksumIEEE(fmt.Append(nil, l.expected, window)))%(36*36), 36)
	}
	return o
}

func seenOnly(c *dedup.Config) { c.SeenOnly = true }

// cached is the in-process cache of finished keys, with room for all keys of a stream.
func cached(c *dedup.Config) { c.CacheBytes = 32 << 20 }
