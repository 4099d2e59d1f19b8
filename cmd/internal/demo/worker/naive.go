package worker

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// runNaive consumes as many services do: SET NX with a time to live, then the effect, and DEL if
// the effect fails. It commits offsets by time.
func (w *worker) runNaive(ctx context.Context) error {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: w.cfg.Redis})
	defer client.Close() //nolint:errcheck // the process ends
	c := saramaConfig()
	c.Consumer.Offsets.AutoCommit.Enable = true
	group, err := w.openGroup(c)
	if err != nil {
		return err
	}
	go func() { // ends when Close closes the channel
		for err := range group.Errors() {
			w.warn(err)
		}
	}()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{w.cfg.Topic}, &naiveHandler{w, client}); err != nil &&
			ctx.Err() == nil {
			w.warn(err)
		}
	}
	return group.Close()
}

type naiveHandler struct {
	*worker
	redis redis.UniversalClient
}

// Setup implements sarama.ConsumerGroupHandler.
func (*naiveHandler) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup implements sarama.ConsumerGroupHandler.
func (*naiveHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim implements sarama.ConsumerGroupHandler.
func (h *naiveHandler) ConsumeClaim(s sarama.ConsumerGroupSession,
	c sarama.ConsumerGroupClaim) error {
	h.assigned(c.Topic(), c.Partition(), s.GenerationID())
	for message := range c.Messages() { // sarama closes it when the session ends
		m := kafkasarama.Message(message)
		m.ID = h.delivered(m)
		if err := h.handle(s.Context(), m); err != nil {
			h.warn(err)
			return nil // not marked: it is redelivered after the next rebalance
		}
		s.MarkMessage(message, "")
	}
	return nil
}

// handle is the usual pattern, with the points where a worker is killed.
func (h *naiveHandler) handle(ctx context.Context, m *kafkaadapter.Message) error {
	victim, err := h.barrier.enter(ctx, m)
	if err != nil {
		return err
	}
	defer h.barrier.leave(m, victim)

	key := h.cfg.Topic + ":" + m.ID
	fresh, err := h.redis.SetNX(ctx, key, time.Now().UnixMilli(), Window).Result()
	if err != nil {
		return err
	}
	if !fresh {
		_, err := h.duplicate(ctx, h.ledger, m)
		return err
	}
	if err := h.effect(ctx, h.ledger, m, victim, nil); err != nil {
		return errors.Join(err, h.redis.Del(context.WithoutCancel(ctx), key).Err())
	}
	return nil
}
