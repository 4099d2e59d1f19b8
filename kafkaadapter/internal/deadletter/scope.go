package deadletter

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// ScopeOf is the scope of the keys of a topic's messages in a consumer group. Package kafkaadapter
// documents it.
func ScopeOf(group, topic string) string {
	// A topic's name has no slash, so the last slash separates the two.
	if scope := group + "/" + topic; !strings.Contains(topic, "/") && msgid.IsScope(scope) {
		return scope
	}
	sum := sha256.Sum256([]byte(strconv.Itoa(len(group)) + "/" + group + "/" + topic))
	return msgid.HashPrefix + hex.EncodeToString(sum[:])
}

// Scopes says under which scope a consumer claims its messages.
type Scopes struct {
	// Explicit is the scope of all messages, unless it is empty.
	Explicit string
	// Group of the consumer. It is empty if Explicit is set, or if nothing is claimed.
	Group string
	// TopicName is the name under which a topic's keys are scoped. Nil: the topic's own.
	TopicName func(topic string) string
	// Retry are the topics in which the headers of messages are believed.
	Retry []string
}

// TopicScope is what Scopes say about one topic.
type TopicScope struct {
	scopes *Scopes
	own    Scoped
	retry  bool
}

// Scoped is the scope of a message, and the first topic that it came from.
type Scoped struct{ Scope, First string }

// Topic returns the scope of a topic. It calls TopicName.
func (s *Scopes) Topic(topic string) TopicScope {
	first := topic
	if s.TopicName != nil {
		first = cmp.Or(s.TopicName(topic), topic)
	}
	return TopicScope{scopes: s, own: s.scoped(first), retry: slices.Contains(s.Retry, topic)}
}

func (s *Scopes) scoped(first string) Scoped {
	switch {
	case s.Explicit != "":
		return Scoped{s.Explicit, first}
	case s.Group == "":
		return Scoped{"", first}
	}
	return Scoped{ScopeOf(s.Group, first), first}
}

// Of returns the scope of a message. Its headers count only in a topic that the consumer retries
// from. Anybody may write them to another topic, for example by copying headers to messages of
// another kind. If they were believed there, a new message would look like the duplicate of another
// topic's message, and its effect would be lost. If true headers are not believed, an effect runs
// again, which is the smaller harm.
func (t *TopicScope) Of(h msgid.Headers) Scoped {
	if !t.retry {
		return t.own
	}
	first := h.Header(FirstTopic)
	if first == "" || first == t.own.First {
		return t.own
	}
	return t.scopes.scoped(first)
}

// Retried reports whether the message is a letter to be tried again. Its headers are believed then.
func (t *TopicScope) Retried(h msgid.Headers) bool { return t.retry && h.Header(FirstTopic) != "" }

// Fallback returns the id that a letter carries, for a message in which Config.ID finds none.
func (t *TopicScope) Fallback(h msgid.Headers) (string, bool) {
	if !t.Retried(h) {
		return "", false
	}
	id := h.Header(ID)
	return id, id != ""
}

// Fault says why a retried letter must not run: its value was left out.
func (t *TopicScope) Fault(h msgid.Headers) error {
	if !t.Retried(h) || h.Header(TooLarge) == "" {
		return nil
	}
	return tooLarge(h)
}
