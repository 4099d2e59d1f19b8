// Package stream makes what the demo produces: messages with duplicates among them.
package stream

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
)

// Kind says why a message is in the stream.
type Kind uint8

const (
	// Original is the first message of its id.
	Original Kind = iota
	// Retry is the same message again, shortly after and in the same partition: the producer got no
	// answer and sent it again.
	Retry
	// Moved is the same message in another partition: the producer computed another partition, or
	// the topic was repartitioned.
	Moved
	// Late is the same message again near the end of the stream.
	Late
)

// Record is a message without a place in the stream.
type Record struct {
	ID    string // equal in two messages that are the same
	Key   string // the Kafka key: the entity whose messages stay in order
	Value []byte
}

// Message is a record with its place in the topic.
type Message struct {
	Record
	Partition int32
	Kind      Kind
}

// Config says how a stream is made.
type Config struct {
	Seed       uint64 // of everything random: the same seed makes the same stream
	Partitions int32
	Duplicates int // percentage of messages that are repeated, for each of the three kinds
}

// Payments makes n records, each with its own id.
func Payments(n int, seed uint64) []Record {
	rnd := rand.New(rand.NewPCG(seed, 1))
	records := make([]Record, n)
	for i := range records {
		id, account := fmt.Sprintf("pay-%06d", i+1), fmt.Sprintf("acct-%03d", rnd.IntN(200))
		value := fmt.Sprintf(`{"id":%q,"account":%q,"amount":%d}`, id, account, 1+rnd.IntN(50_000))
		records[i] = Record{ID: id, Key: account, Value: []byte(value)}
	}
	return records
}

// Make places the records in partitions, in order, and repeats some of them: a Retry and a Moved
// within the next few messages, a Late in the last tenth.
func Make(records []Record, cfg Config) []Message {
	rnd := rand.New(rand.NewPCG(cfg.Seed, 2))
	repeats := func() bool { return rnd.IntN(100) < cfg.Duplicates }
	soon := func(i int) int { return min(i+rnd.IntN(8), len(records)-1) }
	due := make(map[int][]Message) // by index of the record that they follow
	var out []Message
	for i, r := range records {
		m := Message{Record: r, Partition: partition(r.Key, cfg.Partitions)}
		out = append(out, m)
		again := func(kind Kind, after int, shift int32) {
			m := Message{r, (m.Partition + shift) % cfg.Partitions, kind}
			due[after] = append(due[after], m)
		}
		if repeats() {
			again(Retry, soon(i), 0)
		}
		if repeats() && cfg.Partitions > 1 {
			again(Moved, soon(i), 1+rnd.Int32N(cfg.Partitions-1))
		}
		if i < len(records)/2 && repeats() {
			again(Late, len(records)-1-rnd.IntN(1+len(records)/10), 0)
		}
		out = append(out, due[i]...)
	}
	return out
}

// partition returns the partition of an entity. The demo computes it itself, because it also puts
// some messages into a wrong one.
func partition(key string, n int32) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int32(h.Sum32() % uint32(n)) // n is a small positive number
}
