package work

import (
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// Layout is a way in which our store keeps its records.
type Layout struct {
	Name     string // of the side
	Kind     redisadapter.Layout
	seenOnly bool // which the Deduper has to know
	// expected is how many keys end within a window; layouts with buckets are planned by it.
	expected int
	// Extra says that the goals of speed are not about it: they are about the layouts that
	// keep a record per key.
	Extra bool
}

// Layouts are those that take part. A new one needs a line here. The first is the one that
// runs where a family has room for one only.
var Layouts = []Layout{
	{Name: "onceward seen-only", Kind: redisadapter.SeenOnly, seenOnly: true},
	{Name: "onceward rich", Kind: redisadapter.Rich},
	{Name: "onceward compact", Kind: redisadapter.Compact, seenOnly: true, expected: someKeys,
		Extra: true},
	{Name: "onceward mixed", Kind: redisadapter.Mixed, expected: someKeys, Extra: true},
}

// someKeys is about how many keys the timings of one group add: buckets are as full as they
// are planned to be when it ends.
const someKeys = 200_000

// Of returns the layout of a kind.
func Of(kind redisadapter.Layout) Layout {
	return Layouts[slices.IndexFunc(Layouts, func(l Layout) bool { return l.Kind == kind })]
}

// Plain is the layout that completes with one command.
func Plain() Layout { return Of(redisadapter.SeenOnly) }

// Without are the layouts without those kinds, where families have no room for all.
func Without(kinds ...redisadapter.Layout) []Layout {
	return slices.DeleteFunc(slices.Clone(Layouts), func(l Layout) bool {
		return slices.Contains(kinds, l.Kind)
	})
}

// Expecting plans buckets for n keys; layouts without take no notice.
func (l Layout) Expecting(n int) Layout {
	if l.expected > 0 {
		l.expected = n
	}
	return l
}

// options of the store of a Deduper with that window.
func (l Layout) options(window time.Duration) redisadapter.Options {
	o := redisadapter.Options{
		Layout: l.Kind,
		// A prefix has one layout. These are as long as the default one, or keys would be larger.
		Prefix: fmt.Sprint("o", int(l.Kind)),
		// a server without persistence is what is wanted here
		OnFinding: func(redisadapter.Finding) {},
	}
	if l.expected > 0 {
		o.Secret, o.Window, o.ExpectedKeys = []byte("secret of the benchmarks"), window, l.expected
		// Nor are buckets planned twice under one.
		o.Prefix += strconv.FormatUint(
			uint64(crc32.ChecksumIEEE(fmt.Append(nil, l.expected, window)))%(36*36), 36)
	}
	return o
}

// Cached is the in-process cache of finished keys, with room for all keys of a stream.
func Cached(c *dedup.Config) { c.CacheBytes = 32 << 20 }

// Long is a window that no measurement outlives.
func Long(c *dedup.Config) { c.Window = time.Hour }
