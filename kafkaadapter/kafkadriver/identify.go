package kafkadriver

import (
	"fmt"
	"strconv"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/deadletter"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// identify sets the id and the scope of a message, or the reason why it must not run.
func (e *Engine) identify(it *item, topic *deadletter.TopicScope) {
	m := it.msg
	if hook := e.Observer.Delivered; hook != nil {
		hook(m)
	}
	m.ID, it.bad = e.idOf(m, topic)
	scoped := topic.Of(m)
	m.Scope, m.FirstTopic = scoped.Scope, scoped.First
	it.otherTopic = scoped.First != m.Topic
	if fault := topic.Fault(m); fault != nil {
		it.bad = fault
	}
	if len(e.delays) > 0 && topic.Retried(m) {
		it.carried, _ = strconv.Atoi(m.Header(deadletter.Attempts)) // 0 where it is none
		// each run adds one, or the claim sets it
		m.Attempt = it.carried
	}
}

func (e *Engine) idOf(m *kafkaadapter.Message, topic *deadletter.TopicScope) (id string,
	err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("kafkaadapter: Config.ID panicked: %v", v)
		}
	}()
	id, ok := e.ID(m)
	if ok {
		return id, nil
	}
	if id, ok = topic.Fallback(m); ok {
		return id, nil
	}
	if hook := e.Observer.MissingID; hook != nil {
		hook(m)
	}
	if e.Positions {
		id, ok = position(m)
	}
	if !ok && !e.Unclaimed {
		return id, kafkaadapter.ErrNoID
	}
	return id, nil
}

// position is the id of a message that has no other. A letter that was sent back keeps the id that
// it had.
func position(m *kafkaadapter.Message) (string, bool) {
	if id, ok := deadletter.Replayed(m, m.Topic); ok {
		return id, true
	}
	return msgid.Position(m.TopicID, m.Partition, m.Offset, m.Timestamp), m.TopicID != ""
}
