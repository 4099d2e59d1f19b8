package franz

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/kafkaadapter/internal/letter"
	"github.com/onceward/onceward/kafkaadapter/internal/partition"
)

// ScopeOf is the scope of the keys of a topic's messages in a consumer group, where no
// Config.Scope is set: group and topic with a slash between them, such as "billing/orders". Where
// that is no scope of a Deduper (longer than 255 bytes, or not printable) it is "sha256:" and a
// digest of both. The topic is the message's first one: not the retry topic that it was sent to,
// and for a mirrored topic the one that Config.TopicName returns.
//
// It is what finds a message's record: d.Lookup(ctx, id, dedup.WithScope(ScopeOf(group, topic))).
func ScopeOf(group, topic string) string { return letter.ScopeOf(group, topic) }

func (c *Config) scopes(group string) *letter.Scopes {
	return &letter.Scopes{Explicit: c.Scope, Group: group, TopicName: c.TopicName,
		Retry: c.RetryTopics}
}

func (c *ShareConfig) scopes(group string) *letter.Scopes {
	return &letter.Scopes{Explicit: c.Scope, Group: group, TopicName: c.TopicName,
		Retry: c.RetryTopics}
}

// message finds the id and the scope of a record.
func (c *Config) message(out *Message, r *kgo.Record, topic [16]byte,
	scope *letter.TopicScope) partition.Message {
	headers := headersOf(r)
	id, bad := c.idOf(r, topic, scope)
	scoped := scope.Of(headers)
	out.Record, out.ID, out.Scope, out.first = r, id, scoped.Scope, scoped.First
	if fault := scope.Fault(headers); fault != nil {
		bad, out.short = fault, true
	}
	return partition.Message{
		Native: out, Offset: r.Offset, Key: r.Key, Value: r.Value, ID: id, Bad: bad,
		Scope: scoped.Scope, Elsewhere: scoped.First != r.Topic,
	}
}
