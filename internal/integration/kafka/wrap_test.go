package kafka_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// wrappedBatch is how many messages a wrapped handler collects at most.
const wrappedBatch = 5

// wrappedStyle is how a handler of sarama's marks a batch, after its effects.
type wrappedStyle struct {
	name string
	size int
	// cooperative: partitions are revoked while the session of the others continues.
	cooperative bool
	mark        func(mark func(*sarama.ConsumerMessage), batch []*sarama.ConsumerMessage)
}

var wrappedStyles = []wrappedStyle{
	{"each", 1, true, func(mark func(*sarama.ConsumerMessage), batch []*sarama.ConsumerMessage) {
		mark(batch[0])
	}},
	{"the last of a batch", wrappedBatch, false, func(mark func(*sarama.ConsumerMessage),
		batch []*sarama.ConsumerMessage) {
		mark(batch[len(batch)-1])
	}},
	{"out of order", wrappedBatch, false, func(mark func(*sarama.ConsumerMessage),
		batch []*sarama.ConsumerMessage) {
		for _, i := range rand.Perm(len(batch)) {
			mark(batch[i])
		}
	}},
	{"from goroutines", wrappedBatch, true, func(mark func(*sarama.ConsumerMessage),
		batch []*sarama.ConsumerMessage) {
		var marks sync.WaitGroup
		for _, m := range batch {
			marks.Go(func() { mark(m) })
		}
		marks.Wait()
	}},
}

// flavor returns a flavor whose members wrap their handlers. sarama commits what is marked.
func (w wrappedStyle) flavor() flavor {
	return flavor{
		name: "wrapped " + w.name, producer: saramaProducer,
		client: func(t *testing.T, m *member, mc *memberConfig) func(context.Context) error {
			t.Helper()
			c := mc.saramaConfig()
			c.Consumer.Offsets.AutoCommit.Enable = true
			c.Consumer.Offsets.AutoCommit.Interval = 50 * time.Millisecond
			if w.cooperative {
				c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
					sarama.NewBalanceStrategyCooperativeSticky()}
			}
			cfg := mc.Config
			cfg.Handler, cfg.Tuning = nil, kafkaadapter.Tuning{}
			handler, err := kafkasarama.Wrap(mc.group, &wrappedHandler{style: w,
				effect: mc.Handler}, cfg)
			require.NoError(t, err)
			group, err := sarama.NewConsumerGroup(mc.brokers, mc.group, c)
			require.NoError(t, err)
			m.close = group.Close
			go func() {
				for range group.Errors() { // somebody has to read them
				}
			}()
			planted := plantedGroup(mc.bug, toldGroup{group, mc.Observer.Committing})
			return func(ctx context.Context) error {
				for ctx.Err() == nil {
					_ = planted.Consume(ctx, mc.topics, handler)
					_ = backoff.Sleep(ctx, 20*time.Millisecond)
				}
				return nil
			}
		},
	}
}

// wrappedHandler is a handler that knows nothing of Onceward.
type wrappedHandler struct {
	style  wrappedStyle
	effect kafkaadapter.Handler
}

func (*wrappedHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*wrappedHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *wrappedHandler) ConsumeClaim(s sarama.ConsumerGroupSession,
	c sarama.ConsumerGroupClaim) error {
	for {
		batch := h.collect(c)
		if len(batch) == 0 {
			return nil
		}
		for _, m := range batch {
			msg := kafkasarama.Message(m)
			msg.ID, _ = kafkaadapter.DefaultID()(msg)
			if h.effect(s.Context(), msg) != nil {
				return nil // the session is over
			}
		}
		h.style.mark(func(m *sarama.ConsumerMessage) { s.MarkMessage(m, "") }, batch)
	}
}

// collect waits for the first message of a batch, and 50 ms at most for the others.
func (h *wrappedHandler) collect(c sarama.ConsumerGroupClaim) (batch []*sarama.ConsumerMessage) {
	m, open := <-c.Messages()
	if !open {
		return nil
	}
	batch = append(batch, m)
	patience := time.After(50 * time.Millisecond)
	for len(batch) < h.style.size {
		select {
		case m, open := <-c.Messages():
			if !open {
				return batch
			}
			batch = append(batch, m)
		case <-patience:
			return batch
		}
	}
	return batch
}

// toldGroup passes each mark to told: sarama may commit a mark at any moment.
type toldGroup struct {
	sarama.ConsumerGroup
	told func(topic string, partition int32, offset int64)
}

func (g toldGroup) Consume(ctx context.Context, topics []string,
	h sarama.ConsumerGroupHandler) error {
	if g.told == nil {
		return g.ConsumerGroup.Consume(ctx, topics, h)
	}
	return g.ConsumerGroup.Consume(ctx, topics, &toldHandler{h, g.told,
		make(map[sarama.ConsumerGroupSession]*toldSession), sync.Mutex{}})
}

type toldHandler struct {
	sarama.ConsumerGroupHandler
	told     func(topic string, partition int32, offset int64)
	sessions map[sarama.ConsumerGroupSession]*toldSession
	mu       sync.Mutex
}

func (h *toldHandler) session(s sarama.ConsumerGroupSession) sarama.ConsumerGroupSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions[s] == nil {
		h.sessions[s] = &toldSession{s, h.told}
	}
	return h.sessions[s]
}

func (h *toldHandler) Setup(s sarama.ConsumerGroupSession) error {
	return h.ConsumerGroupHandler.Setup(h.session(s))
}

func (h *toldHandler) Cleanup(s sarama.ConsumerGroupSession) error {
	return h.ConsumerGroupHandler.Cleanup(h.session(s))
}

func (h *toldHandler) ConsumeClaim(s sarama.ConsumerGroupSession,
	c sarama.ConsumerGroupClaim) error {
	return h.ConsumerGroupHandler.ConsumeClaim(h.session(s), c)
}

type toldSession struct {
	sarama.ConsumerGroupSession
	told func(topic string, partition int32, offset int64)
}

func (s *toldSession) MarkOffset(topic string, partition int32, offset int64, metadata string) {
	s.told(topic, partition, offset)
	s.ConsumerGroupSession.MarkOffset(topic, partition, offset, metadata)
}

func (s *toldSession) MarkMessage(m *sarama.ConsumerMessage, metadata string) {
	s.MarkOffset(m.Topic, m.Partition, m.Offset+1, metadata)
}

// Members with wrapped handlers are killed while they work. Nothing is lost, and nothing is
// committed before its record, however they mark. The test runs on Apache Kafka if servertest
// requires it.
func TestWrappedThroughKills(t *testing.T) {
	for _, w := range wrappedStyles {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f := w.flavor()
			if servertest.Required() {
				// a new name for the topic, because the brokers outlive the test
				f.name += " " + strconv.FormatUint(rand.Uint64(), 36)
				wrappedThroughKills(t, f.sceneOnReal(t, servertest.Kafka(t)))
				return
			}
			wrappedThroughKills(t, f.scene(t, 1, realPartitions))
		})
	}
}

// sceneOnReal is a scene on brokers that others use, too.
func (f flavor) sceneOnReal(t *testing.T, addrs []string) *scene {
	t.Helper()
	return f.realScene(t, &servertest.Server{Addrs: addrs}, realPartitions, 1)
}

func wrappedThroughKills(t *testing.T, s *scene) {
	const messages, kills = 600, 3
	seed := uint64(time.Now().UnixNano()) // a seed
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0)) // a test
	records, unique := stream(rnd, messages, realPartitions)
	join := func() *member {
		return s.join(func(ctx context.Context, m *kafkaadapter.Message) error {
			return backoff.Sleep(ctx, time.Duration(2+m.Offset%5)*time.Millisecond)
		}, func(mc *memberConfig) {
			if s.cluster == nil { // with a cluster the oracle sees the commits itself
				s.watched(mc)
			}
		})
	}
	members := []*member{join(), join()}
	for range kills {
		began := s.totalEffects()
		s.produce(records[:messages/(kills+1)]...)
		records = records[messages/(kills+1):]
		eventually(t, 20*time.Second, func() (bool, string) {
			return s.totalEffects() > began+10, "nobody works"
		})
		victim := rnd.IntN(2)
		if members[victim].running.Load() == 0 {
			victim = 1 - victim
		}
		members[victim].crash()
		members[victim] = join()
	}
	s.produce(records...)
	s.wantCommittedToEnd(20 * time.Second)
	for _, m := range members {
		m.leave(t)
	}
	s.wantRecorded()
	s.wantNothingLeft()
	doubled, most := s.totalEffects()-unique, kills*realPartitions*wrappedBatch
	t.Logf("%d messages, %d ids, %d effects doubled by %d kills, %d marks or commits", messages,
		unique, doubled, kills, s.oracle.commits)
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Len(t, s.effects, unique, "ids that had an effect")
	assert.LessOrEqual(t, doubled, most, "ids that had two")
}

// The oracle finds a handler that marks on arrival behind Wrap's back, and a record that was never
// written.
func TestWrappedPlantedFaultsAreSeen(t *testing.T) {
	for name, plant := range map[string]func(*memberConfig){
		"marked on arrival": func(mc *memberConfig) { mc.bug = marksOnReceipt },
		"recorded nowhere":  func(mc *memberConfig) { mc.link.Store = forgetful{mc.link.Store} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := wrappedStyles[1].flavor().scene(t, 1, 1).nobodyDies()
			s.produce(numbered(0, 0, 200)...)
			m := s.join(func(ctx context.Context, _ *kafkaadapter.Message) error {
				return backoff.Sleep(ctx, 5*time.Millisecond)
			}, plant)
			s.wantCommittedToEnd(20 * time.Second)
			m.leave(t)
			assert.NotEmpty(t, s.earlyCommits(), "the oracle saw nothing wrong")
		})
	}
}

// forgetful answers that it has recorded what it has not.
type forgetful struct{ driver.Store }

func (forgetful) Finish(_ context.Context, changes []driver.Finish) []driver.Answer {
	answers := make([]driver.Answer, len(changes))
	for i := range answers {
		answers[i].Held, answers[i].Written = true, true
	}
	return answers
}
