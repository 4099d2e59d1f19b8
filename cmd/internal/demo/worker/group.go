package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// saramaConfig is SafeConfig with the short times of a demo: the group notices a crash after
// session.
func saramaConfig(session time.Duration) *sarama.Config {
	c := kafkasarama.SafeConfig(nil)
	c.ClientID = "onceward-demo"
	c.Consumer.Group.Session.Timeout = session
	c.Consumer.Group.Heartbeat.Interval = session / 5
	c.ChannelBufferSize = 32           // fetched messages are taken in even if paused
	c.Consumer.Fetch.Default = 8 << 10 // bytes; about fifty messages
	c.Consumer.MaxWaitTime = 50 * time.Millisecond
	c.Consumer.Retry.Backoff = 200 * time.Millisecond
	c.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	// A join cannot be canceled. The coordinator holds it until every member has joined or this
	// time has passed. A worker that is told to leave must wait that long.
	c.Consumer.Group.Rebalance.Timeout = 6 * time.Second
	c.Metadata.Retry.Backoff = 100 * time.Millisecond
	return c
}

// reportingGroup is a consumer group that reports its assignments. sarama shows them only to
// handlers, and the adapter does not pass them on.
type reportingGroup struct {
	sarama.ConsumerGroup
	worker *worker
}

// Consume implements sarama.ConsumerGroup.
func (g reportingGroup) Consume(ctx context.Context, topics []string,
	h sarama.ConsumerGroupHandler) error {
	return g.ConsumerGroup.Consume(ctx, topics, reportingHandler{h, g.worker})
}

type reportingHandler struct {
	sarama.ConsumerGroupHandler
	worker *worker
}

// Setup implements sarama.ConsumerGroupHandler.
func (h reportingHandler) Setup(s sarama.ConsumerGroupSession) error {
	n := 0
	for _, partitions := range s.Claims() {
		n += len(partitions)
	}
	h.worker.generation.Store(s.GenerationID())
	h.worker.send(Event{Kind: Assigned, Generation: s.GenerationID(), Partitions: n})
	return h.ConsumerGroupHandler.Setup(s)
}

// openGroup makes the group; it joins when Consume is called.
func (w *worker) openGroup(c *sarama.Config) (reportingGroup, error) {
	group, err := sarama.NewConsumerGroup(w.cfg.Kafka, w.cfg.Group, c)
	if err != nil {
		return reportingGroup{}, fmt.Errorf("join %s: %w", w.cfg.Group, err)
	}
	return reportingGroup{group, w}, nil
}
