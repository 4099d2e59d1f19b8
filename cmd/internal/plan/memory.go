package plan

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/onceward/onceward/redisadapter"
)

// These are sizes, in bytes, that Redis 7.0 allocates on a 64-bit machine, from its sources:
// object.c, sds.c, dict.c, intset.c.
const (
	object       = 16 // robj
	entry        = 24 // dictEntry
	slot         = 8  // in the table of a dict
	embeddable   = 44 // bytes of a string that fits into the allocation of its object
	maxIntset    = 512
	digestText   = 22 // an ID in base64url
	recordHeader = 34 // of a record of redisadapter
	keptSize     = 6  // how long it is remembered
	fingerprint  = 17
	origin       = 24
)

// allocated returns the size class of jemalloc for n bytes, with a quantum of 16 bytes: steps of 16
// up to 128, then four steps for each doubling.
func allocated(n int) int {
	if n <= 8 {
		return 8
	}
	step := 16
	if n > 128 {
		step = 1 << (bits.Len(uint(n-1)) - 3)
	}
	return (n + step - 1) / step * step
}

// text returns the memory of a string of n bytes: its header, the bytes, and a zero.
func text(n int) int {
	header := 17
	switch {
	case n < 1<<5:
		header = 1
	case n < 1<<8:
		header = 3
	case n < 1<<16:
		header = 5
	}
	return allocated(header + n + 1)
}

// value returns the memory of an object with a string of n bytes.
func value(n int) int {
	if n <= embeddable {
		return allocated(object + 3 + n + 1)
	}
	return allocated(object) + text(n)
}

// named returns the memory of a key with an expiry, without its value: the name, and an entry in
// each of two dicts.
func named(name int) int { return text(name) + 2*allocated(entry) }

// tables returns the memory of the hash tables behind the dicts of keys and of expiries, for this
// many keys. The sizes of such tables are powers of two.
func tables(keys float64) float64 {
	if keys < 1 {
		return 0
	}
	return 2 * slot * math.Exp2(math.Ceil(math.Log2(keys)))
}

// records returns the memory of keys that each have a record. name and record are the lengths of a
// key's name and of its record.
func records(keys float64, name, record int) float64 {
	return keys*float64(named(name)+value(record)) + tables(keys)
}

// buckets returns the memory of keys that are members of sets, for this number of keys in each
// generation.
func (o *Options) buckets(keys float64, shards, generations int) float64 {
	generation := time.Now().UnixMilli() / max(o.Window.Milliseconds(), 1)
	name := len(fmt.Sprintf("%s:{%d}:%d", o.Prefix, shards, generation))
	mean := keys / float64(shards)
	sum := 0.0
	spread := 12*math.Sqrt(mean) + 12
	for n := math.Max(1, math.Floor(mean-spread)); n <= mean+spread; n++ {
		sum += poisson(n, mean) * (float64(named(name)) + members(int(n)))
	}
	all := float64(shards) * float64(generations)
	return all*sum + tables(all*(1-math.Exp(-mean)))
}

// members returns the memory of a set of n integers: a sorted array, or a dict if the set is too
// large for an array.
func members(n int) float64 {
	const header = 8
	if n <= maxIntset {
		return float64(allocated(object) + allocated(header+8*n))
	}
	const dict, decimal = 56, 19
	return float64(allocated(object)+allocated(dict)+n*(allocated(entry)+text(decimal))) +
		tables(float64(n))/2
}

// poisson returns the probability of n in a Poisson distribution whose mean is expected.
func poisson(n, mean float64) float64 {
	factorial, _ := math.Lgamma(n + 1)
	return math.Exp(n*math.Log(mean) - mean - factorial)
}

// redis returns the memory of this number of keys in each generation. The layout with records has
// one generation, and records of finished keys.
func (o *Options) redis(layout redisadapter.Layout, keys float64, shards, generations int) float64 {
	if layout == redisadapter.Compact {
		return o.buckets(keys, shards, generations)
	}
	record := recordHeader + keptSize + o.Result
	if o.Fingerprint {
		record += fingerprint
	}
	if o.Origin {
		record += origin
	}
	return records(keys, len(o.Prefix)+len(":{}")+digestText, record)
}
