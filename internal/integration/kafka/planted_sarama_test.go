package kafka_test

import (
	"context"
	"sync"

	"github.com/IBM/sarama"
)

// plant puts a bug between sarama and the adapter.
func plant(b bug, g sarama.ConsumerGroup) sarama.ConsumerGroup {
	switch b {
	case marksOnReceipt:
		return buggyGroup{g, func(h sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
			return earlyHandler{h}
		}}
	case commitsOnce:
		return buggyGroup{g, func(h sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
			return &onceHandler{ConsumerGroupHandler: h,
				sessions: map[sarama.ConsumerGroupSession]*onceSession{}}
		}}
	default:
		return g
	}
}

type buggyGroup struct {
	sarama.ConsumerGroup
	bug func(sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler
}

func (g buggyGroup) Consume(ctx context.Context, topics []string,
	h sarama.ConsumerGroupHandler) error {
	return g.ConsumerGroup.Consume(ctx, topics, g.bug(h))
}

// earlyHandler marks every message on arrival.
type earlyHandler struct{ sarama.ConsumerGroupHandler }

func (h earlyHandler) ConsumeClaim(s sarama.ConsumerGroupSession,
	c sarama.ConsumerGroupClaim) error {
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

// onceHandler hands out sessions that commit a mark once.
type onceHandler struct {
	sarama.ConsumerGroupHandler
	mu       sync.Mutex
	sessions map[sarama.ConsumerGroupSession]*onceSession
}

func (h *onceHandler) session(s sarama.ConsumerGroupSession) *onceSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions[s] == nil {
		h.sessions[s] = &onceSession{ConsumerGroupSession: s}
	}
	return h.sessions[s]
}

func (h *onceHandler) Setup(s sarama.ConsumerGroupSession) error {
	return h.ConsumerGroupHandler.Setup(h.session(s))
}

func (h *onceHandler) Cleanup(s sarama.ConsumerGroupSession) error {
	return h.ConsumerGroupHandler.Cleanup(h.session(s))
}

func (h *onceHandler) ConsumeClaim(s sarama.ConsumerGroupSession,
	c sarama.ConsumerGroupClaim) error {
	return h.ConsumerGroupHandler.ConsumeClaim(h.session(s), c)
}

// onceSession commits only when something was marked since.
type onceSession struct {
	sarama.ConsumerGroupSession
	mu    sync.Mutex
	dirty bool
}

func (s *onceSession) MarkOffset(topic string, partition int32, offset int64, metadata string) {
	s.mu.Lock()
	s.dirty = true
	s.mu.Unlock()
	s.ConsumerGroupSession.MarkOffset(topic, partition, offset, metadata)
}

func (s *onceSession) Commit() {
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = false
	s.mu.Unlock()
	if dirty {
		s.ConsumerGroupSession.Commit()
	}
}
