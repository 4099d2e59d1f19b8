package demo

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/cmd/internal/demo/stream"
)

// topic is the topic of one composition and the group that consumes it.
type topic struct {
	name, group string
	client      sarama.Client
	admin       sarama.ClusterAdmin
}

func kafkaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "onceward-demo"
	c.Version = sarama.V2_8_0_0
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	return c
}

// createTopic makes the topic with as many replicas as the broker thinks right.
func createTopic(addrs []string, name string) (*topic, error) {
	client, err := sarama.NewClient(addrs, kafkaConfig())
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	t := &topic{name: name, group: name, client: client, admin: admin}
	err = admin.CreateTopic(name,
		&sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: -1}, false)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create topic %s: %w", name, err), t.close())
	}
	return t, nil
}

// close closes the client, which the admin shares.
func (t *topic) close() error { return t.admin.Close() }

// lag is how many messages are not yet committed.
func (t *topic) lag() (int64, error) {
	ids := make([]int32, partitions)
	for i := range ids {
		ids[i] = int32(i) // six of them
	}
	committed, err := t.admin.ListConsumerGroupOffsets(t.group, map[string][]int32{t.name: ids})
	if err != nil {
		return 0, err
	}
	var lag int64
	for _, p := range ids {
		end, err := t.client.GetOffset(t.name, p, sarama.OffsetNewest)
		if err != nil {
			return 0, err
		}
		block := committed.GetBlock(t.name, p)
		switch {
		case block == nil:
			return 0, fmt.Errorf("no committed offset of partition %d", p)
		case !errors.Is(block.Err, sarama.ErrNoError):
			return 0, block.Err
		}
		lag += end - max(block.Offset, 0) // -1: nothing committed
	}
	return lag, nil
}

// flow says how a producer sends the end of the stream: it is kept back until
// everything has happened that needs messages to happen to.
type flow int32

const (
	holding  flow = iota // nothing of the tail
	dripping             // one message per drip
	flowing              // all of it
)

const (
	tick = 20 * time.Millisecond
	drip = 80 * time.Millisecond
	// A stream takes five session timeouts, but for its tail; a short one less. So
	// crashes, which take one each to be noticed, happen in the middle of it.
	streamSessions = 5
	perSession     = 200 // messages of a short stream
)

// producer sends a stream at an even pace.
type producer struct {
	topic    *topic
	messages []stream.Message
	takes    time.Duration // to send all but the tail
	tailFrom int           // index of the first message of the tail
	sent     atomic.Int64
	tail     atomic.Int32 // a flow
}

// newProducer makes a producer that sends the stream in takes, or in its own time if that is zero.
// It makes the last sixth of the ids the tail, in a short stream a few more, and everything that
// comes between and after them. Only an id that is new has an effect at which a worker can be
// killed.
func newProducer(t *topic, messages []stream.Message, session, takes time.Duration) *producer {
	p := &producer{topic: t, messages: messages, tailFrom: len(messages)}
	p.takes = takes
	if p.takes == 0 {
		p.takes = min(streamSessions*session, session*time.Duration(len(messages))/perSession)
	}
	unique := stream.Unique(messages)
	for ids := max(unique/6, min(unique, 15)); ids > 0 && p.tailFrom > 0; {
		p.tailFrom--
		if messages[p.tailFrom].Kind == stream.Original {
			ids--
		}
	}
	return p
}

// inTail reports whether the tail has begun.
func (p *producer) inTail() bool { return p.sent.Load() >= int64(p.tailFrom) }

func (p *producer) setTail(f flow) { p.tail.Store(int32(f)) }

// run returns when all is sent or ctx ends.
func (p *producer) run(ctx context.Context) error {
	sync, err := sarama.NewSyncProducerFromClient(p.topic.client)
	if err != nil {
		return err
	}
	defer sync.Close() //nolint:errcheck // every message has been answered
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	began, dripped := time.Now(), time.Now()
	for next := 0; next < len(p.messages); {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case now := <-ticker.C:
			n := p.due(next, now.Sub(began), now.Sub(dripped))
			if n == next {
				continue
			}
			if err := sync.SendMessages(p.batch(next, n)); err != nil {
				return fmt.Errorf("produce: %w", err)
			}
			next, dripped = n, now
			p.sent.Store(int64(n))
		}
	}
	return nil
}

// due returns how many messages are to be sent by now, when next have been.
func (p *producer) due(next int, elapsed, sinceLast time.Duration) int {
	total := len(p.messages)
	tail := p.tailFrom
	n := min(int(float64(total)*elapsed.Seconds()/p.takes.Seconds())+1, total)
	switch f := flow(p.tail.Load()); {
	case n <= tail || f == flowing:
	case next < tail:
		n = tail
	case f == dripping && sinceLast >= drip:
		n = next + 1
	default:
		n = next
	}
	return max(n, next)
}

func (p *producer) batch(from, to int) []*sarama.ProducerMessage {
	batch := make([]*sarama.ProducerMessage, 0, to-from)
	for _, m := range p.messages[from:to] {
		batch = append(batch, &sarama.ProducerMessage{
			Topic: p.topic.name, Partition: m.Partition,
			Key: sarama.StringEncoder(m.Key), Value: sarama.ByteEncoder(m.Value),
			Headers: []sarama.RecordHeader{{Key: []byte("message-id"), Value: []byte(m.ID)}},
		})
	}
	return batch
}
