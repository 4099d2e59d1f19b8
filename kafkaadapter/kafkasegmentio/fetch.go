package kafkasegmentio

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"

	"github.com/onceward/onceward/kafkaadapter"
)

// fetchWait is how long a broker waits for messages. Each partition is fetched alone, so no other
// one waits for it.
const fetchWait = 500 * time.Millisecond

// leaderCall is a call for the leader of a partition.
type leaderCall struct {
	call
	request fetch.Request
}

// Broker implements protocol.BrokerMessage.
func (c *leaderCall) Broker(all protocol.Cluster) (protocol.Broker, error) {
	return c.request.Broker(all)
}

// fetchAnswer is the answer of a leader. kafka-go's own type does not show where a batch ends, or
// that compaction has emptied a batch. So this one leaves the batches as they are.
type fetchAnswer struct {
	ThrottleTimeMs int32        `kafka:"min=v1,max=v11"`
	ErrorCode      int16        `kafka:"min=v7,max=v11"`
	SessionID      int32        `kafka:"min=v7,max=v11"`
	Topics         []fetchTopic `kafka:"min=v0,max=v11"`
}

type fetchTopic struct {
	Topic      string    `kafka:"min=v0,max=v11"`
	Partitions []fetched `kafka:"min=v0,max=v11"`
}

// fetched is the answer for one partition.
type fetched struct {
	Partition            int32                       `kafka:"min=v0,max=v11"`
	ErrorCode            int16                       `kafka:"min=v0,max=v11"`
	HighWatermark        int64                       `kafka:"min=v0,max=v11"`
	LastStableOffset     int64                       `kafka:"min=v4,max=v11"`
	LogStartOffset       int64                       `kafka:"min=v5,max=v11"`
	AbortedTransactions  []fetch.ResponseTransaction `kafka:"min=v4,max=v11"`
	PreferredReadReplica int32                       `kafka:"min=v11,max=v11"`
	Batches              []byte                      `kafka:"min=v0,max=v11"`
}

// fetch asks a partition's leader for the committed messages from an offset on.
func (c *cluster) fetch(ctx context.Context, topic string, partition int32, offset int64,
	limit int) (*fetched, error) {
	request := fetch.Request{ReplicaID: -1, MaxWaitTime: int32(fetchWait.Milliseconds()),
		MinBytes: 1, MaxBytes: int32(limit), IsolationLevel: int8(kafka.ReadCommitted),
		SessionEpoch: -1, Topics: []fetch.RequestTopic{{Topic: topic,
			Partitions: []fetch.RequestPartition{{Partition: partition, CurrentLeaderEpoch: -1,
				FetchOffset: offset, LogStartOffset: -1, PartitionMaxBytes: int32(limit)}}}}}
	answer, err := read[*fetchAnswer](ctx, c, &leaderCall{request: request, call: call{
		key: protocol.Fetch, do: func(rw io.ReadWriter, version int16) (any, error) {
			body, err := protocol.Marshal(version, request)
			if err == nil {
				body, err = c.exchange(rw, protocol.Fetch, version, false, body)
			}
			if err != nil {
				return nil, err
			}
			answer := new(fetchAnswer)
			return answer, protocol.Unmarshal(body, version, answer)
		}}})
	switch {
	case err != nil:
		return nil, err
	case answer.ErrorCode != 0:
		return nil, kafka.Error(answer.ErrorCode)
	case len(answer.Topics) != 1 || answer.Topics[0].Topic != topic ||
		len(answer.Topics[0].Partitions) != 1 ||
		answer.Topics[0].Partitions[0].Partition != partition:
		return nil, fmt.Errorf("%w of %s/%d", errNoAnswer, topic, partition)
	}
	found := &answer.Topics[0].Partitions[0]
	if found.ErrorCode != 0 {
		return nil, kafka.Error(found.ErrorCode)
	}
	return found, nil
}

// The offsets of fields in a batch: first those of all versions, then those of version 2.
const (
	atLength  = 8
	atVersion = 16
	minBatch  = 17

	atAttributes = 21
	atLastDelta  = 23
	atMaxTime    = 35
	atProducer   = 43
	atRecords    = 57
	minBatch2    = 61

	appendTime    = 1 << 3 // attribute: the broker's clock counts
	transactional = 1 << 4
	control       = 1 << 5
)

// batch is a batch of version 2, which Kafka writes since 0.11.
type batch []byte

func (b batch) int16(at int) int16 { return int16(binary.BigEndian.Uint16(b[at:])) }
func (b batch) int32(at int) int32 { return int32(binary.BigEndian.Uint32(b[at:])) }
func (b batch) int64(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }

// read returns the messages from an offset on that belong to no transaction, or to a committed one,
// and the offset after everything that was read. An error is about the data that begin at that
// offset.
func (f *fetched) read(topic string, next int64) ([]kafkaadapter.Message, int64, error) {
	var messages []kafkaadapter.Message
	aborted := slices.SortedFunc(slices.Values(f.AbortedTransactions),
		func(x, y fetch.ResponseTransaction) int {
			return cmp.Compare(x.FirstOffset, y.FirstOffset)
		})
	open := make(map[int64]bool) // producers whose transaction will be aborted
	for rest := batch(f.Batches); len(rest) >= minBatch; {
		length := int64(rest.int32(atLength)) + atLength + 4
		if length < minBatch {
			return messages, next, errBatch
		}
		if length > int64(len(rest)) {
			break // the limit has cut it
		}
		b := rest[:length]
		rest = rest[length:]
		last := b.int64(0) // of version 1 it is the last offset
		if b[atVersion] >= 2 {
			if len(b) < minBatch2 {
				return messages, next, errBatch
			}
			last += int64(b.int32(atLastDelta))
			for len(aborted) > 0 && aborted[0].FirstOffset <= last {
				open[aborted[0].ProducerID] = true
				aborted = aborted[1:]
			}
		}
		if last < next {
			continue
		}
		found, err := f.readBatch(b, topic, next, open)
		if err != nil {
			return messages, next, err
		}
		messages = append(messages, found...)
		next = last + 1
	}
	return messages, next, nil
}

var errBatch = errors.New("kafkasegmentio: a batch of messages is damaged")

// readBatch reads one batch, and notes the end of a transaction that was aborted.
func (f *fetched) readBatch(b batch, topic string, next int64,
	open map[int64]bool) ([]kafkaadapter.Message, error) {
	var attributes int16
	want := -1
	if b[atVersion] >= 2 {
		attributes, want = b.int16(atAttributes), int(b.int32(atRecords))
	}
	producer := func() int64 { return b.int64(atProducer) }
	switch {
	case want == 0: // compaction has left nothing
		return nil, nil
	case attributes&control != 0:
		// A producer has one transaction at a time, so its marker ends the one that is open.
		delete(open, producer())
		return nil, nil
	case attributes&transactional != 0 && open[producer()]:
		return nil, nil
	}
	var set protocol.RecordSet
	in := bytes.NewBuffer(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b))))
	in.Write(b)
	if _, err := set.ReadFrom(in); err != nil {
		return nil, fmt.Errorf("%w: %w", errBatch, err)
	}
	var messages []kafkaadapter.Message
	n := 0
	for set.Records != nil {
		r, err := set.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBatch, err)
		}
		m, err := f.message(r, topic)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBatch, err)
		}
		if n++; m.Offset < next {
			continue
		}
		if attributes&appendTime != 0 {
			m.Time = time.UnixMilli(b.int64(atMaxTime))
		}
		messages = append(messages, messageOf(m))
	}
	if want >= 0 && n != want { // kafka-go leaves out records that it cannot read
		return nil, fmt.Errorf("%w: %d of %d messages can be read", errBatch, n, want)
	}
	return messages, nil
}

func (f *fetched) message(r *protocol.Record, topic string) (kafka.Message, error) {
	m := kafka.Message{Topic: topic, Partition: int(f.Partition), Offset: r.Offset, Time: r.Time,
		Headers: r.Headers, HighWaterMark: f.HighWatermark}
	for _, part := range []struct {
		to   *[]byte
		from protocol.Bytes
	}{{&m.Key, r.Key}, {&m.Value, r.Value}} {
		if part.from == nil {
			continue
		}
		var err error
		if *part.to, err = protocol.ReadAll(part.from); err != nil {
			return m, err
		}
		_ = part.from.Close() // gives its memory back
	}
	return m, nil
}
