package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// runNaive consumes as many services do: SET NX with a time to live, then the effect, and DEL if
// the effect fails. It commits offsets by time.
func (w *worker) runNaive(ctx context.Context) error {
	metrics.UseNilMetrics = true
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: w.cfg.Redis})
	defer client.Close() //nolint:errcheck // the process ends
	c := saramaConfig(w.cfg.Session)
	c.Consumer.Offsets.AutoCommit.Enable = true
	group, err := w.openGroup(c)
	if err != nil {
		return err
	}
	go func() { // ends when Close closes the channel
		for err := range group.Errors() {
			w.groupError(err)
		}
	}()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{w.cfg.Topic}, &naiveHandler{w, client}); err != nil &&
			ctx.Err() == nil {
			w.groupError(err)
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				break
			}
		}
	}
	return group.Close()
}

type naiveHandler struct {
	w     *worker
	redis redis.UniversalClient
}

// Setup implements sarama.ConsumerGroupHandler.
func (*naiveHandler) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup implements sarama.ConsumerGroupHandler.
func (*naiveHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim implements sarama.ConsumerGroupHandler.
func (h *naiveHandler) ConsumeClaim(s sarama.ConsumerGroupSession,
	c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-s.Context().Done():
			return nil
		case m, ok := <-c.Messages():
			if !ok {
				return nil
			}
			h.w.delivered(kafkasarama.Message(m))
			if err := h.handle(s.Context(), m); err != nil {
				h.w.groupError(err)
				return nil // not marked: it is redelivered after the next rebalance
			}
			s.MarkMessage(m, "")
		}
	}
}

// handle is the usual pattern, with the points where a worker is killed.
func (h *naiveHandler) handle(ctx context.Context, m *sarama.ConsumerMessage) error {
	w := h.w
	id, _ := kafkaadapter.DefaultID()(kafkasarama.Message(m))
	place := fmt.Sprintf("%d/%d", m.Partition, m.Offset)
	victim, err := w.barrier.enter(ctx, place)
	if err != nil {
		return err
	}
	defer w.barrier.leave(place)

	key := w.cfg.Namespace + ":" + id
	began := time.Now()
	fresh, err := h.redis.SetNX(ctx, key, began.UnixMilli(), w.cfg.Window).Result()
	if err != nil || !fresh {
		w.barrier.failed(place, victim)
		return errors.Join(err, h.reportSkipped(ctx, m, id, err == nil))
	}
	w.stand(victim, BeforeEffect, id)
	row := w.row(kafkasarama.Message(m), id)
	if err := w.ledger.Append(ctx, w.ledger.DB, string(Naive), row); err != nil {
		w.barrier.failed(place, victim)
		return errors.Join(err, h.redis.Del(context.WithoutCancel(ctx), key).Err())
	}
	w.send(Event{Kind: Effected, ID: id})
	w.stand(victim, AfterEffect, id)
	return nil
}

func (h *naiveHandler) reportSkipped(ctx context.Context, m *sarama.ConsumerMessage, id string,
	skipped bool) error {
	if !skipped {
		return nil
	}
	cause, err := h.w.whyDuplicate(ctx, h.w.ledger.DB, kafkasarama.Message(m), id)
	if err != nil {
		return err
	}
	h.w.send(Event{Kind: Skipped, ID: id, Cause: cause})
	return nil
}
