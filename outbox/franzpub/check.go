package franzpub

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/outbox"
)

// limits are the limits by which kgo refuses a record before it sends anything.
type limits struct {
	batch    func(topic string) int32 // kgo.ProducerBatchMaxBytes
	buffered int64                    // kgo.MaxBufferedBytes, or zero
}

func limitsOf(client *kgo.Client) limits {
	l := limits{batch: func(string) int32 { return 1 << 30 }}
	if fn, ok := client.OptValue(kgo.ProducerBatchMaxBytesFn).(func(string) int32); ok {
		l.batch = fn
	}
	l.buffered, _ = client.OptValue(kgo.MaxBufferedBytes).(int64)
	return l
}

// batchOverhead is the size of a batch without its records, in bytes. For a broker that kgo does
// not know yet it may count three bytes more.
const batchOverhead = 62

// Check refuses a message that kgo would refuse: one that is larger than ProducerBatchMaxBytes,
// which is 1,000,012 bytes by default, or than MaxBufferedBytes. Without it kgo would fail only
// that record, and send the later ones of its key.
func (p *Publisher) Check(m *outbox.Message) error {
	user, record := sizes(m)
	if record+batchOverhead > int64(p.limits.batch(m.Topic)) ||
		p.limits.buffered > 0 && user > p.limits.buffered {
		return kerr.MessageTooLarge
	}
	return nil
}

// sizes returns the size of the message itself, and that of its record in Kafka's format as the
// first of a batch, in bytes.
func sizes(m *outbox.Message) (user, record int64) {
	record = 1 + 1 + 1 // attributes, and the deltas of time and offset
	record += part(len(m.Key)) + part(len(m.Payload)) + varint(int64(len(m.Headers)))
	user = int64(len(m.Key) + len(m.Payload))
	for _, h := range m.Headers {
		record += part(len(h.Key)) + part(len(h.Value))
		user += int64(len(h.Key) + len(h.Value))
	}
	return user, record + varint(record)
}

// part returns the size of n bytes with their length before them.
func part(n int) int64 { return varint(int64(n)) + int64(n) }

func varint(n int64) int64 {
	var b [binary.MaxVarintLen64]byte
	return int64(binary.PutVarint(b[:], n))
}
