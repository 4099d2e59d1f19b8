package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// oracle sees every commit request at the broker and checks that every offset below it
// has a record in the store at that moment.
type oracle struct {
	store dedup.Store
	ids   map[int32][]string

	mu         sync.Mutex
	checked    map[int32]int64
	commits    int
	violations []string
}

func watch(c *kfake.Cluster, store dedup.Store) *oracle {
	o := &oracle{store: store, checked: map[int32]int64{}}
	c.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:staticcheck // the order of results is kfake's
		c.KeepControl()
		for _, topic := range req.(*kmsg.OffsetCommitRequest).Topics {
			for _, p := range topic.Partitions {
				o.commit(p.Partition, p.Offset)
			}
		}
		return nil, nil, false
	})
	return o
}

// expect tells the oracle which id lies at every position.
func (o *oracle) expect(ids map[int32][]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids = ids
}

func (o *oracle) commit(partition int32, offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.commits++
	from := o.checked[partition]
	if offset <= from || o.ids == nil {
		return
	}
	var keys []dedup.ID
	for _, id := range o.ids[partition][from:offset] {
		key, err := dedup.NewID("t", "", id)
		if err != nil {
			panic(err)
		}
		keys = append(keys, key)
	}
	for i, ans := range o.store.Lookup(context.Background(), keys) {
		if s := ans.Record.State; s != dedup.StateSucceeded && s != dedup.StateFailed {
			o.violations = append(o.violations, fmt.Sprintf("commit %d of partition %d: offset %d is %v", offset, partition, from+int64(i), s))
		}
	}
	o.checked[partition] = offset
}

// complete reports whether every partition is committed to its end.
func (o *oracle) complete() (bool, string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, ids := range o.ids {
		if o.checked[p] < int64(len(ids)) {
			return false, fmt.Sprintf("partition %d is committed to %d of %d", p, o.checked[p], len(ids))
		}
	}
	return true, ""
}

func (o *oracle) total() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	var n int64
	for _, c := range o.checked {
		n += c
	}
	return n
}

// stream is n messages over the partitions; every fifth repeats an earlier id, on
// whatever partition.
func stream(rnd *rand.Rand, n, partitions int) (records []record, unique int) {
	for i := range n {
		id := idOf(unique)
		if i > 0 && i%5 == 0 {
			id = idOf(rnd.IntN(unique))
		} else {
			unique++
		}
		p := partitionsOf(partitions, rnd.IntN(partitions))
		records = append(records, record{id: id, partition: p, key: fmt.Sprint("k", rnd.IntN(500)), value: []byte(id)})
	}
	return records, unique
}

// Under crashes and rebalances nothing is committed before its record, and nothing is
// lost.
func TestCommitsNeverRunAheadOfRecords(t *testing.T) {
	const messages, partitions, rounds = 12_000, 6, 5
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
	store := dedup.Memory(1 << 20)
	c := embedded(t)
	o := watch(c, store)
	createTopic(t, c.ListenAddrs(), "orders", partitions, 1)
	records, unique := stream(rnd, messages, partitions)
	o.expect(produce(t, c.ListenAddrs(), "orders", records))

	var effects sync.Map
	var ran, delivered, rebalances atomic.Int64
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		select { // the effect takes a moment, so that crashes hit it
		case <-time.After(time.Duration(len(m.ID)%3) * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		n, _ := effects.LoadOrStore(m.ID, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		ran.Add(1)
		return nil
	}
	observer := kafkaadapter.Observer{
		Delivered: func(*sarama.ConsumerMessage) { delivered.Add(1) },
		Revoked:   func(string, int32, int, int) { rebalances.Add(1) },
	}
	join := func() *member {
		return start(t, c.ListenAddrs(), "g", "orders", store, handler, observer, nil)
	}
	members := []*member{join(), join()}
	for round := range rounds {
		goal := int64(messages*(round+1)/(rounds+1)) / 2
		eventually(t, 60*time.Second, func() (bool, string) { return o.total() >= goal, fmt.Sprint("committed ", o.total()) })
		extra := join() // a rebalance that comes
		victim := rnd.IntN(len(members))
		members[victim].crash()
		members[victim] = join()
		goal += messages / (rounds + 1) / 4
		eventually(t, 60*time.Second, func() (bool, string) { return o.total() >= goal, fmt.Sprint("committed ", o.total()) })
		extra.leave(t) // and one that goes
	}
	eventually(t, 120*time.Second, o.complete)
	for _, m := range members {
		m.leave(t)
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	seen, doubled := 0, int64(0)
	effects.Range(func(_, n any) bool { seen++; doubled += n.(*atomic.Int64).Load() - 1; return true })
	t.Logf("%d messages, %d ids, %d deliveries, %d effects (%d doubled by %d crashes), %d commits, %d partitions revoked",
		messages, unique, delivered.Load(), ran.Load(), doubled, rounds, o.commits, rebalances.Load())
	if len(o.violations) > 0 {
		t.Errorf("%d commits ran ahead, first: %s", len(o.violations), o.violations[0])
	}
	if seen != unique {
		t.Errorf("%d ids had an effect, %d were sent", seen, unique)
	}
	if delivered.Load() <= messages {
		t.Error("nothing was redelivered: the crashes hit nothing")
	}
}

// The oracle catches a wrapper that marks a message when it arrives.
func TestOracleCatchesEarlyMarks(t *testing.T) {
	store := dedup.Memory(1 << 20)
	c := embedded(t)
	o := watch(c, store)
	createTopic(t, c.ListenAddrs(), "orders", 2, 1)
	var records []record
	for i := range 400 {
		records = append(records, record{id: idOf(i), partition: partitionsOf(2, i), key: fmt.Sprint(i)})
	}
	o.expect(produce(t, c.ListenAddrs(), "orders", records))
	handler := func(ctx context.Context, _ *kafkaadapter.Message) error {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
		return context.Cause(ctx)
	}
	m := start(t, c.ListenAddrs(), "g", "orders", store, handler, kafkaadapter.Observer{},
		func(g sarama.ConsumerGroup) sarama.ConsumerGroup { return earlyGroup{g} })
	eventually(t, 30*time.Second, o.complete)
	m.leave(t)
	if len(o.violations) == 0 {
		t.Fatal("the oracle saw nothing wrong in a handler that marks before the effect")
	}
	t.Logf("%d violations in %d commits, first: %s", len(o.violations), o.commits, o.violations[0])
}

// earlyGroup marks every message on arrival.
type earlyGroup struct{ sarama.ConsumerGroup }

func (g earlyGroup) Consume(ctx context.Context, topics []string, h sarama.ConsumerGroupHandler) error {
	return g.ConsumerGroup.Consume(ctx, topics, earlyHandler{h})
}

type earlyHandler struct{ sarama.ConsumerGroupHandler }

func (h earlyHandler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	out := make(chan *sarama.ConsumerMessage)
	go func() {
		defer close(out)
		for m := range c.Messages() {
			s.MarkMessage(m, "")
			select {
			case out <- m:
			case <-s.Context().Done():
				return
			}
		}
	}()
	return h.ConsumerGroupHandler.ConsumeClaim(s, earlyClaim{c, out})
}

type earlyClaim struct {
	sarama.ConsumerGroupClaim
	messages <-chan *sarama.ConsumerMessage
}

func (c earlyClaim) Messages() <-chan *sarama.ConsumerMessage { return c.messages }
