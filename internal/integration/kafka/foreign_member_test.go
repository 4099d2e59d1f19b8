package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
)

// foreignLoop is a member that knows nothing of Onceward: it has the effect of what it polls, and
// then commits it.
type foreignLoop func(ctx context.Context, g *mixedGroup) error

// mixedGroup is a group of members of both kinds.
type mixedGroup struct {
	t            *testing.T
	brokers      []string
	topic, group string
	store        dedup.Store
	client       *kgo.Client
	watch        *commitWatch
	sent         int

	mu       sync.Mutex
	effects  map[string]map[string]int // by id, of "ours" and "foreign"
	received map[string]int            // positions that our members received
	refused  map[string]bool           // ids whose commit by the foreign member was refused
}

const mixedPartitions = 4

// A group also has a member that does not use Onceward. It commits by itself, with empty metadata
// or with metadata of its own. Each kind of member continues where the other kind has committed.
// Every driver whose groups commit offsets is tested.
func TestGroupSharedWithForeignConsumer(t *testing.T) {
	for name, foreign := range map[string]foreignLoop{
		"sarama":        foreignFranz(true),
		"segmentio":     foreignFranz(true),
		"confluent":     foreignFranz(false),
		"franz-classic": foreignConfluent("partition.assignment.strategy", "cooperative-sticky"),
		"franz-848":     foreignConfluent("group.protocol", "consumer"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newMixedGroup(t)
			ours := func(ctx context.Context, g *mixedGroup) error { return g.consume(ctx, name) }

			leave := g.join(foreign)
			g.produce(200)
			g.wantHandled("foreign alone")
			join := g.join(ours)
			g.wantSplit()
			leave()
			g.produce(200) // the partitions move while there is work
			g.wantHandled("ours alone")
			assert.GreaterOrEqual(t, g.count("ours"), 200)
			g.wantNotReceivedBelow(50)

			leave = g.join(foreign)
			g.wantSplit()
			join()
			before := g.count("foreign")
			g.produce(200)
			g.wantHandled("foreign again")
			assert.GreaterOrEqual(t, g.count("foreign")-before, 200)
			leave()
			t.Log(len(g.effects), "ids, refused commits of the foreign member: ", len(g.refused))
			for id, by := range g.effects {
				if g.refused[id] {
					continue
				}
				assert.Equal(t, 1, by["ours"]+by["foreign"], "effects of %s: %v", id, by)
			}
		})
	}
}

func newMixedGroup(t *testing.T) *mixedGroup {
	t.Helper()
	name := servertest.Prefix(t)
	g := &mixedGroup{t: t, brokers: servertest.Kafka(t), topic: name, group: name + "_group",
		store: dedup.Memory(1 << 16), effects: map[string]map[string]int{},
		received: map[string]int{}, refused: map[string]bool{}}
	createTopic(t, g.brokers, g.topic, mixedPartitions, 1)
	var err error
	g.client, err = kgo.NewClient(kgo.SeedBrokers(g.brokers...), kgo.DefaultProduceTopic(g.topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(g.client.Close)
	g.watch = newCommitWatch(g.brokers, g.topic, g.group, mixedPartitions)
	t.Cleanup(g.watch.close)
	return g
}

// produce sends n messages, spread evenly over the partitions.
func (g *mixedGroup) produce(n int) {
	g.t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		id := fmt.Append(nil, idOf(g.sent))
		records[i] = &kgo.Record{Partition: partitionsOf(mixedPartitions, g.sent), Key: id,
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: id}}}
		g.sent++
	}
	require.NoError(g.t, g.client.ProduceSync(g.t.Context(), records...).FirstErr())
}

// join runs member until leave is called.
func (g *mixedGroup) join(member foreignLoop) (leave func()) {
	g.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(g.t.Context()))
	g.t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- member(ctx, g) }()
	return func() {
		g.t.Helper()
		cancel()
		require.NoError(g.t, <-done)
	}
}

// consume runs a member that uses Onceward.
func (g *mixedGroup) consume(ctx context.Context, flavor string) error {
	d, err := dedup.New(g.store, dedup.Config{Namespace: "t", Window: time.Hour,
		LeaseTTL: 30 * time.Second})
	if err != nil {
		return err
	}
	m := &membership{brokers: g.brokers, group: g.group, topics: []string{g.topic},
		session: 6 * time.Second, rebalance: 10 * time.Second}
	return faultedFlavors[flavor](ctx, m, kafkaadapter.Config{Deduper: d,
		Handler: func(_ context.Context, m *kafkaadapter.Message) error {
			g.affect("ours", m.ID)
			return nil
		},
		Observer: kafkaadapter.Observer{Delivered: func(m *kafkaadapter.Message) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.received[fmt.Sprint(m.Partition, " ", m.Offset)]++
		}},
		Tuning: kafkaadapter.Tuning{Drain: time.Second, CommitEvery: 50 * time.Millisecond},
	})
}

func (g *mixedGroup) affect(who, id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.effects[id] == nil {
		g.effects[id] = map[string]int{}
	}
	g.effects[id][who]++
}

// count is how many effects one kind had.
func (g *mixedGroup) count(who string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, by := range g.effects {
		n += by[who]
	}
	return n
}

// wantHandled waits until everything has had an effect, and is committed.
func (g *mixedGroup) wantHandled(when string) {
	g.t.Helper()
	eventually(g.t, 20*time.Second, func() (bool, string) {
		g.watch.look()
		var sum int64
		for p := range int32(mixedPartitions) {
			sum += g.watch.offset(p)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		return sum == int64(g.sent) && len(g.effects) == g.sent, fmt.Sprintf(
			"%s: %d sent, %d with an effect, %d committed", when, g.sent, len(g.effects), sum)
	})
}

// wantSplit sends messages until both kinds have had effects of them, and all are committed.
func (g *mixedGroup) wantSplit() {
	g.t.Helper()
	ours, foreign := g.count("ours"), g.count("foreign")
	eventually(g.t, 30*time.Second, func() (bool, string) {
		g.produce(mixedPartitions)
		a, b := g.count("ours")-ours, g.count("foreign")-foreign
		return a > 0 && b > 0, fmt.Sprintf("ours had %d, the foreign one %d", a, b)
	})
	g.wantHandled("both")
}

// wantNotReceivedBelow checks that our members received no message below offset, because the
// foreign member had committed those.
func (g *mixedGroup) wantNotReceivedBelow(offset int) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range mixedPartitions {
		for o := range offset {
			assert.Zero(g.t, g.received[fmt.Sprint(p, " ", o)], "%d@%d was committed", p, o)
		}
	}
}

// foreignFranz commits with kgo, which sends the member's id as metadata. If empty is true, the
// metadata is removed.
func foreignFranz(empty bool) foreignLoop {
	return func(ctx context.Context, g *mixedGroup) error {
		client, err := kgo.NewClient(kgo.SeedBrokers(g.brokers...),
			kgo.Balancers(kgo.RangeBalancer()), kgo.ConsumerGroup(g.group),
			kgo.ConsumeTopics(g.topic), kgo.DisableAutoCommit(),
			kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(250*time.Millisecond),
			kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(100*time.Millisecond))
		if err != nil {
			return err
		}
		defer client.CloseAllowingRebalance()
		bare := kgo.PreCommitFnContext(context.WithoutCancel(ctx),
			func(r *kmsg.OffsetCommitRequest) error {
				for i := range r.Topics {
					if !empty {
						continue
					}
					for j := range r.Topics[i].Partitions {
						r.Topics[i].Partitions[j].Metadata = nil
					}
				}
				return nil
			})
		for ctx.Err() == nil {
			polled, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			records := client.PollRecords(polled, 50).Records()
			cancel()
			for _, r := range records {
				g.affect("foreign", string(r.Headers[0].Value))
			}
			if err := client.CommitRecords(bare, records...); err != nil {
				return err
			}
			client.AllowRebalance()
		}
		return nil
	}
}

// refusesCommit commits a message, and reports whether that was refused. Our members may then
// receive the message, too.
func (g *mixedGroup) refusesCommit(client *kafka.Consumer, m *kafka.Message) bool {
	_, err := client.CommitMessage(m)
	if err == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused[string(m.Headers[0].Value)] = true
	return true
}

// foreignConfluent commits with librdkafka.
func foreignConfluent(property, value string) foreignLoop {
	return func(ctx context.Context, g *mixedGroup) error {
		config := kafka.ConfigMap{"bootstrap.servers": strings.Join(g.brokers, ","),
			"group.id": g.group, "enable.auto.commit": false, "auto.offset.reset": "earliest",
			"fetch.wait.max.ms": 100, property: value}
		if property != "group.protocol" {
			config["session.timeout.ms"], config["heartbeat.interval.ms"] = 6000, 250
		}
		client, err := kafka.NewConsumer(&config)
		if err != nil {
			return err
		}
		defer func() { _ = client.Close() }()
		if err := client.Subscribe(g.topic, nil); err != nil {
			return err
		}
		pending := map[int32]*kafka.Message{} // refused in a rebalance, which needs the next poll
		for ctx.Err() == nil {
			if m, ok := client.Poll(100).(*kafka.Message); ok && m.TopicPartition.Error == nil {
				g.affect("foreign", string(m.Headers[0].Value))
				pending[m.TopicPartition.Partition] = m
			}
			for p, m := range pending {
				if !g.refusesCommit(client, m) {
					delete(pending, p)
				}
			}
		}
		return nil
	}
}
