package kafkadriver

import (
	"log/slog"
	"sync"
)

// others are the topics about which a warning was logged because records of another topic or group
// were found for their messages. Each gets one warning: the Observer and the Deduper count all such
// messages. The zero value is ready, and safe for concurrent use.
type others struct {
	mu     sync.Mutex
	warned map[string]bool
}

func (o *others) first(topic string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.warned[topic] {
		return false
	}
	if o.warned == nil {
		o.warned = make(map[string]bool)
	}
	o.warned[topic] = true
	return true
}

// warn reports a message that is skipped although another topic or group has made its record.
func (o *others) warn(log *slog.Logger, topic string, partition int32, offset int64, scope string) {
	if o.first(topic) {
		log.Warn("kafkaadapter: a message is skipped because another topic or consumer group has recorded its id under the same scope; "+
			"if they are different messages, give each a scope of its own (this is logged once for a topic)",
			"topic", topic, "partition", partition, "offset", offset, "scope", scope)
	}
}
