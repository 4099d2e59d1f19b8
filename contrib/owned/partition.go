package owned

import (
	"fmt"
	"unicode/utf8"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup/driver"
)

// maxSource and maxMapping bound the names of a source and of a mapping, in bytes. maxCount bounds
// the number of partitions of a source.
const (
	maxSource  = 512
	maxMapping = 64
	maxCount   = 1 << 20
)

// Partition names what [Store.Acquire] acquires: all keys of Source that the partitioner assigns to
// Number when there are Count partitions.
type Partition struct {
	// Source is [driver.Origin].Source of the requests: for Kafka "group/topic". 1 to 512 bytes of
	// UTF-8.
	Source string
	// Number is the partition's number, 0 to Count-1. It is [driver.Origin].Partition of the
	// requests.
	Number int32
	// Count is the number of partitions that Source has now, at most 2^20. It may grow: see the
	// package comment.
	Count int32
	// Mapping names the function from keys to partitions, at most 64 bytes of letters, digits, '_',
	// '.', '-'. Another mapping moves keys, so Acquire accepts it only while nobody holds a
	// partition of Source. Default "default".
	Mapping string
	// Generation orders owners for Options.TakeOverOlderGeneration; for Kafka it is the generation
	// of the consumer group. Default 0: unknown. An owner without a generation takes over from
	// nobody.
	Generation int32
}

// complete returns the partition with its defaults, or names the first bad field.
func (p Partition) complete() (Partition, error) {
	if p.Mapping == "" {
		p.Mapping = "default"
	}
	switch {
	case p.Source == "" || len(p.Source) > maxSource || !utf8.ValidString(p.Source):
		return p, input("Partition.Source",
			fmt.Sprintf("has %d bytes; 1 to %d of UTF-8 are needed", len(p.Source), maxSource))
	case p.Count < 1 || p.Count > maxCount:
		return p, input("Partition.Count",
			fmt.Sprintf("is %d; the number of partitions of the source is needed, 1 to %d",
				p.Count, maxCount))
	case p.Number < 0 || p.Number >= p.Count:
		return p, input("Partition.Number",
			fmt.Sprintf("is %d; with a Count of %d it is 0 to %d", p.Number, p.Count, p.Count-1))
	case p.Generation < 0:
		return p, input("Partition.Generation",
			fmt.Sprintf("is %d; it must not be negative", p.Generation))
	}
	if problem := script.PrefixProblem(p.Mapping); problem != "" {
		return p, input("Partition.Mapping", problem)
	}
	return p, nil
}

// partitionKey is a partition without its owner. Requests and records name a partition by its
// source and number.
type partitionKey struct {
	source uint64 // driver.Origin.Digest
	number int32
}

func (p *Partition) place() partitionKey {
	o := driver.Origin{Source: p.Source}
	return partitionKey{source: o.Digest(), number: p.Number}
}
