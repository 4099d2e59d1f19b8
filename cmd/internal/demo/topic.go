package demo

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/cmd/internal/demo/stream"
)

// topic is the topic of one composition, and the group that consumes it.
type topic struct {
	name, group string
	client      *kgo.Client
	admin       *kadm.Client
}

// createTopic creates the topic with the broker's default number of replicas.
func createTopic(ctx context.Context, addrs []string, name string) (*topic, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	t := &topic{name: name, group: name, client: client, admin: kadm.NewClient(client)}
	if _, err := t.admin.CreateTopic(ctx, partitions, -1, nil, name); err != nil {
		client.Close()
		return nil, fmt.Errorf("create topic %s: %w", name, err)
	}
	return t, nil
}

// lag is how many messages are not yet committed.
func (t *topic) lag(ctx context.Context) (lag int64, err error) {
	committed, err := t.admin.FetchOffsets(ctx, t.group)
	ends, failed := t.admin.ListEndOffsets(ctx, t.name)
	if err = errors.Join(err, failed, committed.Error(), ends.Error()); err != nil {
		return 0, err
	}
	ends.Each(func(end kadm.ListedOffset) {
		lag += end.Offset - max(committed[t.name][end.Partition].At, 0)
	})
	return lag, nil
}

// flow is the way in which a producer sends the tail, which is the end of the stream. The producer
// holds the tail back until all steps that need messages are over.
type flow int32

const (
	holding  flow = iota // nothing of the tail
	dripping             // one message of the tail per drip
	flowing              // all of the tail
)

const (
	tick = 20 * time.Millisecond
	drip = 80 * time.Millisecond
	// Sending a stream without its tail takes five session timeouts, or less for a short stream.
	// The group needs one session timeout to notice a crash, so crashes happen in the middle of the
	// stream.
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

// newProducer makes a producer that sends the stream without its tail within the time takes. If
// takes is zero, the time depends on session. The tail begins at the first message of the last
// sixth of the ids, or of the last 15 ids in a short stream, and goes to the end. It is counted in
// ids because a worker can only be killed at the effect of a new id.
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

// run returns when all messages are sent or ctx ends.
func (p *producer) run(ctx context.Context) error {
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
			err := p.topic.client.ProduceSync(ctx, p.batch(next, n)...).FirstErr()
			if err != nil {
				return fmt.Errorf("produce: %w", err)
			}
			next, dripped = n, now
			p.sent.Store(int64(n))
		}
	}
	return nil
}

// due returns how many messages should have been sent by now. The parameter next is how many have
// been sent so far.
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

func (p *producer) batch(from, to int) []*kgo.Record {
	batch := make([]*kgo.Record, 0, to-from)
	for _, m := range p.messages[from:to] {
		batch = append(batch, &kgo.Record{
			Topic: p.topic.name, Partition: m.Partition, Key: []byte(m.Key), Value: m.Value,
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(m.ID)}},
		})
	}
	return batch
}
