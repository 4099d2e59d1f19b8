package kafka_test

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
)

// plantedClient puts a bug between the consumer and its client.
func plantedClient(b bug, c sarama.Client) sarama.Client {
	if b == commitsOnce {
		return onceClient{c}
	}
	return c
}

// onceClient does not find the coordinator again.
type onceClient struct{ sarama.Client }

func (onceClient) RefreshCoordinator(string) error { return errors.New("not a second time") }

// plantedGroup puts a bug between sarama and the consumer.
func plantedGroup(b bug, g sarama.ConsumerGroup) sarama.ConsumerGroup {
	if b == marksOnReceipt {
		return earlyGroup{g}
	}
	return g
}

type earlyGroup struct{ sarama.ConsumerGroup }

func (g earlyGroup) Consume(ctx context.Context, topics []string,
	h sarama.ConsumerGroupHandler) error {
	return g.ConsumerGroup.Consume(ctx, topics, earlyHandler{h})
}

// earlyHandler marks every message on arrival, and commits some of the marks.
type earlyHandler struct{ sarama.ConsumerGroupHandler }

func (h earlyHandler) ConsumeClaim(s sarama.ConsumerGroupSession,
	c sarama.ConsumerGroupClaim) error {
	out := make(chan *sarama.ConsumerMessage)
	go func() {
		defer close(out)
		for m := range c.Messages() {
			s.MarkMessage(m, "")
			if m.Offset%50 == 0 { // a commit may wait for a fetch
				s.Commit()
			}
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
