package kafkadriver

import (
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// This file is for clients whose broker acknowledges single messages, as in a share group. They
// have no partitions, so no [Partition] either. A Partition uses Skip and Unparked, too.

// Identify sets the id and the scope of a message, or returns what is wrong with it. otherTopic
// says that the message's first topic is another one, where its record may have been made.
func (e *Engine) Identify(m *kafkaadapter.Message) (otherTopic bool, bad error) {
	e.mu.Lock()
	scope, ok := e.topics[m.Topic]
	if !ok {
		scope = e.scopes.Topic(m.Topic)
		e.topics[m.Topic] = scope
	}
	e.mu.Unlock()
	it := item{msg: m}
	e.identify(&it, &scope)
	if m.ID != "" {
		e.identified.add(TopicPartition{m.Topic, m.Partition})
	}
	return it.otherTopic, it.bad
}

// HasIDs reports whether this process has received a message with an id from a partition.
func (e *Engine) HasIDs(topic string, partition int32) bool {
	return e.identified.has(TopicPartition{topic, partition})
}

// SkippedOtherSource warns, once for a topic, that a message is skipped although another topic or
// group has made its record.
func (e *Engine) SkippedOtherSource(m *kafkaadapter.Message) {
	if !e.others.add(m.Topic) {
		return
	}
	e.Logger.Warn("kafkaadapter: a message is skipped because another topic or consumer group has recorded its id under the same scope; "+
		"if they are different messages, give each a scope of its own (this is logged once for a topic)",
		"topic", m.Topic, "partition", m.Partition, "offset", m.Offset, "scope", m.Scope)
}

// Skip reports the duplicate of a message that is done.
func (e *Engine) Skip(m *kafkaadapter.Message, otherTopic bool, c *dedup.Claim) {
	if c.Cause == driver.OtherSource && !otherTopic {
		e.SkippedOtherSource(m)
	}
	if hook := e.Observer.Skipped; hook != nil {
		hook(m, c.Cause, c.Record.Age)
	}
}

// Unparked reports whether a message that is on record as failed must still be put aside:
// Config.Resolve found the failure of this very message, and its parking was cut short. Other
// messages with its id have nothing to do with it.
func (e *Engine) Unparked(m *kafkaadapter.Message, c *dedup.Claim) bool {
	here, found := driver.Origin{Source: e.group + "/" + m.Topic}, &c.Record.Origin
	return FoundFailed(c) && found.Digest() == here.Digest() && found.Partition == m.Partition &&
		found.Offset == m.Offset
}

// RequestOf returns the option with which the message is claimed.
func (e *Engine) RequestOf(m *kafkaadapter.Message) dedup.Option {
	r := dedup.Request{Key: m.ID, Scope: m.Scope, NoResult: true,
		Origin: driver.Origin{Source: e.group + "/" + m.Topic, Partition: m.Partition,
			Offset: m.Offset}}
	if e.Fingerprint {
		r.Fingerprint = driver.FingerprintOf(m.Value)
	}
	if e.Label != nil {
		r.Label = Label(e.Label(m))
	}
	return func(to *dedup.Request) { *to = r }
}
