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
	"github.com/onceward/onceward/cmd/internal/demo/worker"
)

// flow is the way in which a producer sends the tail, which is the end of the stream. The producer
// holds the tail back until all steps that need messages are over.
type flow int32

const (
	holding  flow = iota // nothing of the tail
	dripping             // one message of the tail per drip
	flowing              // all of the tail
)

const (
	tick      = 20 * time.Millisecond
	drip      = 80 * time.Millisecond
	lookEvery = 150 * time.Millisecond // for whether all is committed
	// Sending a stream without its tail takes five session timeouts, or less for a short stream.
	// The group needs one session timeout to notice a crash, so crashes happen in the middle of the
	// stream.
	streamSessions = 5
	perSession     = 200 // messages of a short stream
)

// producer sends a stream at an even pace to the topic of one composition.
type producer struct {
	topic    string // and the group that consumes it
	client   *kgo.Client
	admin    *kadm.Client
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
func newProducer(topic string, messages []stream.Message, takes time.Duration) *producer {
	p := &producer{topic: topic, messages: messages, tailFrom: len(messages), takes: takes}
	if p.takes == 0 {
		p.takes = min(streamSessions*worker.Session,
			worker.Session*time.Duration(len(messages))/perSession)
	}
	unique := count(messages, func(m stream.Message) bool { return m.Kind == stream.Original })
	for ids := max(unique/6, min(unique, 15)); ids > 0; {
		p.tailFrom--
		if messages[p.tailFrom].Kind == stream.Original {
			ids--
		}
	}
	return p
}

// createTopic creates the topic with the broker's default number of replicas.
func (p *producer) createTopic(ctx context.Context, addrs []string) (err error) {
	p.client, err = kgo.NewClient(kgo.SeedBrokers(addrs...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	p.admin = kadm.NewClient(p.client)
	if _, err := p.admin.CreateTopic(ctx, partitions, -1, nil, p.topic); err != nil {
		p.client.Close()
		return fmt.Errorf("create topic %s: %w", p.topic, err)
	}
	return nil
}

// exhausted reports whether all messages are sent.
func (p *producer) exhausted() bool { return p.sent.Load() == int64(len(p.messages)) }

// inTail reports whether the tail has begun.
func (p *producer) inTail() bool { return p.sent.Load() >= int64(p.tailFrom) }

// run returns when all messages are sent and the group has committed them, or when ctx ends.
func (p *producer) run(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	began, dripped := time.Now(), time.Now()
	for next := 0; !p.exhausted() || !p.committed(ctx); {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case now := <-ticker.C:
			n := p.due(next, now.Sub(began), now.Sub(dripped))
			if n == next {
				continue
			}
			var batch []*kgo.Record
			for _, m := range p.messages[next:n] {
				batch = append(batch, &kgo.Record{
					Topic: p.topic, Partition: m.Partition, Key: []byte(m.Key), Value: m.Value,
					Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte(m.ID)}},
				})
			}
			if err := p.client.ProduceSync(ctx, batch...).FirstErr(); err != nil {
				return fmt.Errorf("produce: %w", err)
			}
			next, dripped = n, now
			p.sent.Store(int64(n))
			if p.exhausted() {
				ticker.Reset(lookEvery)
			}
		}
	}
	return nil
}

// committed reports whether the group has committed all messages. It returns false after an error,
// because the coordinator may be moving.
func (p *producer) committed(ctx context.Context) bool {
	committed, err := p.admin.FetchOffsets(ctx, p.topic)
	ends, failed := p.admin.ListEndOffsets(ctx, p.topic)
	if errors.Join(err, failed, committed.Error(), ends.Error()) != nil {
		return false
	}
	all := true
	ends.Each(func(end kadm.ListedOffset) {
		all = all && end.Offset <= max(committed[p.topic][end.Partition].At, 0)
	})
	return all
}

// due returns how many messages should have been sent by now. The parameter next is how many have
// been sent so far.
func (p *producer) due(next int, elapsed, sinceLast time.Duration) int {
	total, tail := len(p.messages), p.tailFrom
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
