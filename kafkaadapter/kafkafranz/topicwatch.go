package kafkafranz

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

const (
	// topicLook is the time between two looks at a client's topics.
	topicLook = time.Second
	// lookPatience bounds one look.
	lookPatience = 5 * time.Second
	// topicAbsences is how many looks in a row must miss a topic before it counts as deleted: one
	// broker may hear of a topic later than another one.
	topicAbsences = 2
	// topicUnseen is how many looks in a row must not find a topic before it is reported, and then
	// again and again: it may be created at the same time as the group.
	topicUnseen = 10
)

// topicWatch checks whether the topics of a client are still those that it began with. When a topic
// is deleted and another one gets its name, a client never reads the new one. It says so only after
// ten seconds, or, in a share group, not at all. topicWatch also reports what a client retries
// without a word: brokers that cannot be reached, and topics that do not exist.
type topicWatch struct {
	client *kgo.Client
	gone   func(topic string) // another topic has the name; called at most once
	report func(error)
	uuids  map[string][16]byte
	missed map[string]int // looks in a row, of topics that were there
	unseen map[string]int // looks in a row, of topics that never were
	blind  bool
	share  bool
}

func newTopicWatch(client *kgo.Client, gone func(string), report func(error)) *topicWatch {
	return &topicWatch{client: client, gone: gone, report: report, uuids: make(map[string][16]byte),
		missed: make(map[string]int), unseen: make(map[string]int)}
}

// run looks until ctx ends, or a topic is gone. A failed look is made again.
func (w *topicWatch) run(ctx context.Context) {
	for {
		if topic := w.look(ctx); topic != "" {
			w.gone(topic)
			return
		}
		if kafkadriver.Sleep(ctx, topicLook) != nil {
			return
		}
	}
}

// look returns the name of a topic that has been replaced or deleted.
func (w *topicWatch) look(ctx context.Context) string {
	topics := w.client.GetConsumeTopics() // with a regular expression: those that it has found
	answer, err := lookUp(ctx, w.client, topics)
	if err != nil {
		if ctx.Err() == nil {
			w.report(fmt.Errorf("kafkafranz: no answer from the cluster of %q: %w",
				w.client.OptValue(kgo.SeedBrokers), err))
		}
		return ""
	}
	for _, t := range answer {
		if t.Topic == nil {
			continue
		}
		err := kerr.ErrorForCode(t.ErrorCode)
		w.exists(*t.Topic, err)
		if w.compare(*t.Topic, t.TopicID, err) || w.deleted(*t.Topic, err) {
			return *t.Topic
		}
	}
	return ""
}

// exists reports a topic that this client has never found. The client waits for it.
func (w *topicWatch) exists(topic string, err error) {
	if _, known := w.uuids[topic]; known || err == nil {
		delete(w.unseen, topic)
		return
	}
	if w.unseen[topic]++; w.unseen[topic]%topicUnseen == 0 {
		w.report(fmt.Errorf("kafkafranz: topic %q cannot be read, and is waited for: %w", topic, err))
	}
}

// compare notes a topic's UUID, and reports whether it had another one before.
func (w *topicWatch) compare(topic string, uuid [16]byte, err error) (changed bool) {
	switch before, ok := w.uuids[topic]; {
	case err == nil && uuid == [16]byte{}:
		if !w.blind {
			w.report(fmt.Errorf("kafkafranz: topic %q has no UUID, brokers must be 2.8 at least: stop the group before a topic is "+
				"deleted and created again, or messages of the new one are skipped", topic))
		}
		w.blind = true
		return false
	case uuid == [16]byte{}: // it does not exist, or nobody knows
		return false
	case !ok:
		w.uuids[topic] = uuid
		return false
	default:
		return before != uuid
	}
}

// deleted reports whether a topic of a share group is gone. While a member is assigned a topic that
// does not exist, Kafka 4.3 answers its fetches with UNKNOWN_SERVER_ERROR. The broker still locks
// the messages of the other topics in these fetches, for half a minute. A client that leaves
// releases its locks, and the next client is not assigned the topic. In a group of another kind the
// fetch itself reports the missing topic.
func (w *topicWatch) deleted(topic string, err error) bool {
	if _, known := w.uuids[topic]; !known || !errors.Is(err, kerr.UnknownTopicOrPartition) {
		delete(w.missed, topic)
		return false
	}
	w.missed[topic]++
	return w.share && w.missed[topic] >= topicAbsences
}
