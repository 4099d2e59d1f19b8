package kafkaadapter

import (
	"github.com/onceward/onceward/kafkaadapter/internal/letter"
)

// ScopeOf is the scope of the keys of a topic's messages in a consumer group, where no
// Config.Scope is set: group and topic with a slash between them, such as "billing/orders". Where
// that is no scope of a Deduper (longer than 255 bytes, or not printable) it is "sha256:" and a
// digest of both. The topic is the message's first one: not the retry topic that it was sent to,
// and for a mirrored topic the one that Config.TopicName returns.
//
// It is what finds a message's record: d.Lookup(ctx, id, dedup.WithScope(ScopeOf(group, topic))).
func ScopeOf(group, topic string) string { return letter.ScopeOf(group, topic) }

func (c *Config) scopes() *letter.Scopes {
	return &letter.Scopes{Explicit: c.Scope, Group: c.Group, TopicName: c.TopicName,
		Retry: c.RetryTopics}
}
