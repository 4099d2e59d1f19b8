package kafkaadapter

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// Positions makes ids of the positions of messages, for [Config.Positions]. It is safe for
// concurrent use, also by several adapters.
//
// The id is the topic's UUID, partition, offset and timestamp. The UUID keeps the messages
// of a topic that was deleted and created again apart from those that had their offsets
// before. It is looked up for every partition that is assigned, before its first message,
// so all members call a message the same. The timestamp keeps them apart while a session
// goes on over such a change, and those of a log that an unclean election of a leader has
// cut; where producers write equal timestamps, stop the consumers before a topic is
// created again.
//
// It tells redeliveries, and nothing else: what a producer sent twice, what came through a
// retry topic, and what a mirror copied lie at other positions, and run again. A dead
// letter that was sent back keeps the id it had.
type Positions struct {
	describe func(topics []string) ([]*sarama.TopicMetadata, error)
	admin    sarama.ClusterAdmin

	mu     sync.RWMutex
	topics map[string]topicID

	looking sync.Mutex // held during a look-up, never with mu
}

// topicID is the UUID that a topic had, by an answer to a question asked at that time.
type topicID struct {
	text  string
	asked time.Time
}

// NewPositions looks up the topics, in one round trip and its retries. The admin client
// belongs to the caller and must live as long as the consumer.
//
// The error is an [*dedup.InputError] for a nil admin or no topics, and says why a topic
// has no UUID: it does not exist, the brokers are older than 2.8, or the client's
// Config.Version is.
func NewPositions(admin sarama.ClusterAdmin, topics ...string) (*Positions, error) {
	switch {
	case admin == nil:
		return nil, &dedup.InputError{Field: "Admin", Reason: "is nil"}
	case len(topics) == 0:
		return nil, &dedup.InputError{Field: "Topics", Reason: "is empty"}
	case slices.Contains(topics, ""):
		return nil, &dedup.InputError{Field: "Topics", Reason: "has an empty name"}
	}
	p := &Positions{describe: admin.DescribeTopics, admin: admin, topics: make(map[string]topicID)}
	if err := p.lookUp(topics); err != nil {
		return nil, err
	}
	return p, nil
}

// assigned looks a topic up again. It takes as long as the admin client does.
func (p *Positions) assigned(topic string) error { return p.lookUpSince(topic, time.Now()) }

// lookUpSince lets partitions that are assigned together share an answer: any counts whose
// question was asked after the assignment.
func (p *Positions) lookUpSince(topic string, since time.Time) error {
	p.looking.Lock()
	defer p.looking.Unlock()
	p.mu.RLock()
	known := p.topics[topic]
	p.mu.RUnlock()
	if known.asked.After(since) {
		return nil
	}
	return p.lookUp([]string{topic})
}

func (p *Positions) lookUp(topics []string) error {
	asked := time.Now()
	answers, err := p.describe(topics)
	if err != nil {
		return fmt.Errorf("kafkaadapter: the topics' UUIDs cannot be looked up: %w", err)
	}
	found := make(map[string]topicID, len(topics))
	for _, answer := range answers {
		switch {
		case answer.Err != sarama.ErrNoError:
			return fmt.Errorf("kafkaadapter: topic %q has no UUID: %w", answer.Name, answer.Err)
		case answer.Uuid == sarama.Uuid{}:
			return fmt.Errorf("kafkaadapter: topic %q has no UUID: brokers and sarama.Config.Version must be 2.8 at least", answer.Name)
		}
		found[answer.Name] = topicID{text: answer.Uuid.String(), asked: asked}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, topic := range topics {
		if found[topic].text == "" {
			return fmt.Errorf("kafkaadapter: topic %q was not described", topic)
		}
		p.topics[topic] = found[topic]
	}
	return nil
}

// id is that of a message which has no other.
func (p *Positions) id(m *sarama.ConsumerMessage) (string, bool) {
	if id, ok := Replayed()(m); ok {
		return id, true
	}
	topic := p.topicID(m.Topic)
	return msgid.Position(topic, m.Partition, m.Offset, m.Timestamp), topic != ""
}

// topicID is the UUID of a topic by the last look-up, empty for one that was never looked up.
func (p *Positions) topicID(topic string) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.topics[topic].text
}
