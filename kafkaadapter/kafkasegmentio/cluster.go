package kafkasegmentio

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"

	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

const (
	// askPatience bounds a request; kafka-go waits for an answer until its context ends.
	askPatience = 10 * time.Second
	// layoutTTL bounds how long kafka-go sends requests to a broker that is no longer the leader.
	layoutTTL = 3 * time.Second
)

var errNoAnswer = errors.New("kafkasegmentio: the brokers' answer does not tell")

// cluster asks the brokers. It is the kafkadriver.TopicSource of a Run.
type cluster struct {
	group, clientID string
	transport       *kafka.Transport
	client          kafka.Client

	mu     sync.Mutex
	counts map[string]int // of the session's topics
	more   func(error)    // a topic has more partitions than the session knows
}

func (c *Consumer) newCluster() *cluster {
	t := c.opts.Transport
	own := &kafka.Transport{Dial: t.Dial, DialTimeout: cmp.Or(t.DialTimeout, dialTimeout),
		IdleTimeout: t.IdleTimeout, ClientID: t.ClientID, TLS: t.TLS, SASL: t.SASL,
		MetadataTTL: layoutTTL, MetadataTopics: c.topics}
	return &cluster{group: c.engine.Group(), clientID: t.ClientID, transport: own,
		client: kafka.Client{Addr: kafka.TCP(c.brokers...), Transport: own}}
}

// ask sends a request. The request itself says for which broker it is.
func ask[R kafka.Response](ctx context.Context, c *cluster, request kafka.Request) (answer R,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	got, err := c.transport.RoundTrip(ctx, c.client.Addr, request)
	if err != nil {
		return answer, err
	}
	answer, ok := got.(R)
	if !ok {
		return answer, errNoAnswer
	}
	return answer, nil
}

// read sends a call, and returns the value that the call has read. When ctx has ended the call may
// still be under way, so it shares nothing with the caller.
func read[T any](ctx context.Context, c *cluster, request kafka.Request) (value T, err error) {
	got, err := ask[*reply](ctx, c, request)
	if err != nil {
		return value, err
	}
	value, ok := got.value.(T)
	if !ok {
		return value, errNoAnswer
	}
	return value, nil
}

// Topics implements [kafkadriver.TopicSource]. It asks the coordinator, because that broker takes
// the commit.
func (c *cluster) Topics(ctx context.Context,
	topics []string) (map[string]kafkadriver.TopicState, error) {
	answer, err := c.lookUp(ctx, topics)
	if err != nil {
		return nil, err
	}
	found := make(map[string]kafkadriver.TopicState, len(topics))
	for _, t := range answer {
		switch t.err {
		case 0, kafka.LeaderNotAvailable:
			found[t.name] = kafkadriver.TopicState{UUID: kafkadriver.TopicID(t.uuid)}
			c.compare(t)
		case kafka.UnknownTopicOrPartition:
			found[t.name] = kafkadriver.TopicState{Absent: t.err}
		default:
			return nil, fmt.Errorf("kafkasegmentio: topic %q: %w", t.name, t.err)
		}
	}
	return found, nil
}

// begin watches the partitions of a session's topics, because kafka-go's own watch creates topics.
func (c *cluster) begin(more func(error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts, c.more = make(map[string]int), more
}

func (c *cluster) compare(t topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, known := c.counts[t.name]
	if c.counts != nil {
		c.counts[t.name] = t.partitions
	}
	if known && t.partitions > before {
		c.more(fmt.Errorf("kafkasegmentio: topic %q has %d partitions", t.name, t.partitions))
	}
}

// count asks for the number of a topic's partitions.
func (c *cluster) count(ctx context.Context, name string) (int32, error) {
	answer, err := c.lookUp(ctx, []string{name})
	if err != nil {
		return 0, err
	}
	for _, t := range answer {
		if t.name == name && t.err == 0 {
			return int32(t.partitions), nil
		}
	}
	return 0, fmt.Errorf("%w of topic %q", errNoAnswer, name)
}

// Committed implements [kafkadriver.TopicSource].
func (c *cluster) Committed(ctx context.Context, topic string, partition int32) (int64, string,
	error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	answer, err := c.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: c.group,
		Topics: map[string][]int{topic: {int(partition)}}})
	switch {
	case err != nil:
		return 0, "", err
	case answer.Error != nil && !errors.Is(answer.Error, kafka.GroupIdNotFound):
		return 0, "", answer.Error
	}
	for _, p := range answer.Topics[topic] {
		if p.Partition == int(partition) {
			return p.CommittedOffset, p.Metadata, p.Error
		}
	}
	return 0, "", fmt.Errorf("%w the offset of %s/%d", errNoAnswer, topic, partition)
}

// Bounds implements [kafkadriver.TopicSource].
func (c *cluster) Bounds(ctx context.Context, topic string, partition int32) (oldest, end int64,
	err error) {
	if oldest, err = c.Oldest(ctx, topic, partition); err == nil {
		end, err = c.offset(ctx, topic, partition, kafka.LastOffset)
	}
	if err == nil && end < 0 {
		err = fmt.Errorf("%w the end of %s/%d", errNoAnswer, topic, partition)
	}
	return oldest, end, err
}

// Oldest returns the first offset of a partition's log.
func (c *cluster) Oldest(ctx context.Context, topic string, partition int32) (int64, error) {
	oldest, err := c.offset(ctx, topic, partition, kafka.FirstOffset)
	if err == nil && oldest < 0 {
		err = fmt.Errorf("%w the oldest offset of %s/%d", errNoAnswer, topic, partition)
	}
	return oldest, err
}

// Since implements [kafkadriver.TopicSource].
func (c *cluster) Since(ctx context.Context, topic string, partition int32,
	at time.Time) (int64, error) {
	return c.offset(ctx, topic, partition, at.UnixMilli())
}

// offset asks for the offset that belongs to a time, or to kafka.FirstOffset or LastOffset, and
// returns -1 if there is none. kafka.Client's ListOffsets returns 0 for a partition that is not in
// the answer.
func (c *cluster) offset(ctx context.Context, topic string, partition int32,
	at int64) (int64, error) {
	answer, err := ask[*listoffsets.Response](ctx, c, &listoffsets.Request{ReplicaID: -1,
		Topics: []listoffsets.RequestTopic{{Topic: topic,
			Partitions: []listoffsets.RequestPartition{{Partition: partition,
				CurrentLeaderEpoch: -1, Timestamp: at}}}}})
	if err != nil {
		return 0, err
	}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			switch {
			case t.Topic != topic || p.Partition != partition:
			case p.ErrorCode != 0:
				return 0, kafka.Error(p.ErrorCode)
			default:
				return p.Offset, nil
			}
		}
	}
	return 0, fmt.Errorf("%w an offset of %s/%d", errNoAnswer, topic, partition)
}

// commit makes one attempt, and returns the coordinator's answers by topic and partition.
// kafka.Client's OffsetCommit sends the leader epoch 0, so other clients would conclude that the
// log was cut. This request sends none.
func (c *cluster) commit(ctx context.Context, generation *kafka.Generation,
	all []kafkadriver.Due) (map[kafkadriver.TopicPartition]error, error) {
	r := &offsetcommit.Request{GroupID: c.group, GenerationID: generation.ID,
		MemberID: generation.MemberID, RetentionTimeMs: -1}
	for _, d := range all {
		r.Topics = append(r.Topics, offsetcommit.RequestTopic{Name: d.Topic,
			Partitions: []offsetcommit.RequestPartition{{PartitionIndex: d.Partition,
				CommittedOffset: d.Next, CommittedLeaderEpoch: -1,
				CommittedMetadata: d.Metadata}}})
	}
	answer, err := ask[*offsetcommit.Response](ctx, c, r)
	if err != nil {
		return nil, err
	}
	answers := make(map[kafkadriver.TopicPartition]error, len(all))
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			var refusal error
			if p.ErrorCode != 0 {
				refusal = kafka.Error(p.ErrorCode)
			}
			at := kafkadriver.TopicPartition{Topic: t.Name, Partition: p.PartitionIndex}
			answers[at] = refusal
		}
	}
	for _, d := range all {
		at := kafkadriver.TopicPartition{Topic: d.Topic, Partition: d.Partition}
		if _, ok := answers[at]; !ok {
			answers[at] = errNoAnswer
		}
	}
	return answers, nil
}

// call is a request that writes itself and reads its answer. It is for requests that kafka-go does
// not have, or reads wrongly. Its answer is a reply: see read.
type call struct {
	key     protocol.ApiKey
	do      func(rw io.ReadWriter, version int16) (any, error)
	version int16 // the newest of the broker and of kafka-go
}

// ApiKey implements protocol.Message.
func (c *call) ApiKey() protocol.ApiKey { return c.key } //nolint:staticcheck // kafka-go's name

// Required implements protocol.RawExchanger.
func (c *call) Required(versions map[protocol.ApiKey]int16) bool {
	c.version = versions[c.key]
	return true
}

// RawExchange implements protocol.RawExchanger.
func (c *call) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	value, err := c.do(rw, c.version)
	return &reply{c.key, value}, err
}

// reply is the answer to a call.
type reply struct {
	key   protocol.ApiKey
	value any
}

// ApiKey implements protocol.Message.
func (r *reply) ApiKey() protocol.ApiKey { return r.key } //nolint:staticcheck // kafka-go's name

// groupCall is a call for the coordinator of a group.
type groupCall struct {
	call
	group string
}

// Group implements protocol.GroupMessage.
func (c *groupCall) Group() string { return c.group }

// exchange writes a request, and returns the body of its answer. In flexible versions both headers
// have tags.
func (c *cluster) exchange(rw io.ReadWriter, key protocol.ApiKey, version int16, flexible bool,
	body []byte) ([]byte, error) {
	const correlation = 1
	request := binary.BigEndian.AppendUint16(make([]byte, 4, 64+len(body)), uint16(key))
	request = binary.BigEndian.AppendUint16(request, uint16(version))
	request = binary.BigEndian.AppendUint32(request, correlation)
	request = appendText(request, c.clientID)
	if flexible {
		request = append(request, 0)
	}
	request = append(request, body...)
	binary.BigEndian.PutUint32(request, uint32(len(request)-4))
	if _, err := rw.Write(request); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(rw, head[:]); err != nil {
		return nil, err
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 4 || binary.BigEndian.Uint32(head[4:]) != correlation {
		return nil, fmt.Errorf("kafkasegmentio: the answer to a %v request is not one", key)
	}
	var answer bytes.Buffer
	if _, err := io.CopyN(&answer, rw, int64(size)-4); err != nil {
		return nil, err
	}
	out := decoder{b: answer.Bytes()}
	if flexible {
		out.tags()
	}
	return out.b, nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(text))), text...)
}

// heartbeat sends a heartbeat; its error is the coordinator's answer. kafka.Client's Heartbeat
// reads the throttle time of an answer as the error.
func (c *cluster) heartbeat(ctx context.Context, generation *kafka.Generation) error {
	body := appendText(binary.BigEndian.AppendUint32(appendText(nil, c.group),
		uint32(generation.ID)), generation.MemberID)
	code, err := read[kafka.Error](ctx, c, &groupCall{group: c.group, call: call{
		key: protocol.Heartbeat, do: func(rw io.ReadWriter, _ int16) (any, error) {
			answer, err := c.exchange(rw, protocol.Heartbeat, 0, false, body)
			d := decoder{b: answer}
			return kafka.Error(d.int16()), err
		}}})
	if err == nil && code != 0 {
		return code
	}
	return err
}
