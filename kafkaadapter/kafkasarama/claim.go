package kafkasarama

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// handler is the sarama.ConsumerGroupHandler of a Consumer.
type handler struct{ c *Consumer }

// Setup implements sarama.ConsumerGroupHandler: it starts the session's committer.
func (h handler) Setup(session sarama.ConsumerGroupSession) error {
	h.c.begin(session)
	return nil
}

// Cleanup implements sarama.ConsumerGroupHandler: it commits what is finished and stops the
// session's committer.
func (h handler) Cleanup(session sarama.ConsumerGroupSession) error { return h.c.end(session) }

// ConsumeClaim implements sarama.ConsumerGroupHandler: it consumes one partition until it is
// revoked, the session ends, or a message cannot be processed.
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession,
	claim sarama.ConsumerGroupClaim) error {
	err := h.c.consumeClaim(session, claim)
	if kafkadriver.IsFatal(err) {
		h.c.member.Fail(err)
	}
	return err
}

func (c *Consumer) consumeClaim(member sarama.ConsumerGroupSession,
	claim sarama.ConsumerGroupClaim) error {
	s := c.session(member)
	if s == nil {
		return errors.New("kafkasarama: ConsumeClaim without Setup")
	}
	topic, number := claim.Topic(), claim.Partition()
	if !s.topics.Claimed(s.assigned, topic, number, claim.InitialOffset(), s.commits.rewind) {
		return nil // another session begins where this one should have
	}
	uuid := s.topics.UUID(topic)
	if uuid == "" && (c.engine.Positions || c.engine.RangeHandler != nil) {
		return fmt.Errorf("kafkasarama: topic %q has no UUID, which Positions and a RangeHandler need: brokers and sarama.Config.Version must be 2.8 at least", topic)
	}
	p, err := c.engine.Assign(kafkadriver.Assignment{
		Topic: topic, Partition: number, Generation: member.GenerationID(),
		Context: s.assigned, Fenced: s.fenced, Committer: s.committer, Counts: c.counts,
		Halt: c.member.Halt, LogEnd: claim.HighWaterMarkOffset, Begin: claim.InitialOffset(),
		Pause: func(on bool) { c.member.Pause(topic, number, on) },
	})
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		return err
	}
	s.commits.Add(topic, number)
	intake := c.intake(p, claim, uuid)
	ended := p.End()
	s.commits.Forget(topic, number)
	return cmp.Or(ended, intake, context.Cause(s.fenced))
}

// intake takes messages until the channel closes or the partition ends. It never waits for the
// store or for a handler: sarama would hold up every partition of the same broker.
func (c *Consumer) intake(p *kafkadriver.Partition, claim sarama.ConsumerGroupClaim,
	uuid string) error {
	in := pipeline.NewIntake(claim.Messages(), c.engine.Tuning.BatchMax, c.engine.Tuning.BatchWait)
	var batch []*sarama.ConsumerMessage
	for {
		var err error
		batch, err = in.Next(p.Context(), batch[:0])
		if err != nil {
			return nil //nolint:nilerr // revoked, session over, or stopped: the partition knows why
		}
		messages := make([]kafkaadapter.Message, len(batch))
		for i, m := range batch {
			messages[i] = messageOf(m)
			messages[i].TopicID = uuid
		}
		if err := p.Take(messages); err != nil {
			return err
		}
	}
}

// Message makes a message of one that sarama has delivered, for [kafkaadapter.Replay] and for tests
// of a handler. ID, Scope and Attempt, which a consumer sets, are empty.
func Message(m *sarama.ConsumerMessage) *kafkaadapter.Message {
	if m == nil {
		return nil
	}
	out := messageOf(m)
	return &out
}

func messageOf(m *sarama.ConsumerMessage) kafkaadapter.Message {
	out := kafkaadapter.Message{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset,
		Key: m.Key, Value: m.Value, Timestamp: m.Timestamp, Raw: m}
	out.ReadHeaders(headers{})
	return out
}

// headers reads the headers of a *sarama.ConsumerMessage.
type headers struct{}

// Last implements [kafkaadapter.HeaderReader].
func (headers) Last(raw any, name string) ([]byte, bool) {
	m := raw.(*sarama.ConsumerMessage) //nolint:errcheck,forcetypeassert // messageOf has put it there
	for i := len(m.Headers) - 1; i >= 0; i-- {
		if h := m.Headers[i]; h != nil && strings.EqualFold(string(h.Key), name) {
			return h.Value, true
		}
	}
	return nil, false
}

// All implements [kafkaadapter.HeaderReader].
func (headers) All(raw any) kafkaadapter.Headers {
	m := raw.(*sarama.ConsumerMessage) //nolint:errcheck,forcetypeassert // messageOf has put it there
	all := make(kafkaadapter.Headers, 0, len(m.Headers))
	for _, h := range m.Headers {
		if h != nil {
			all = append(all, kafkaadapter.Header{Key: string(h.Key), Value: h.Value})
		}
	}
	return all
}
