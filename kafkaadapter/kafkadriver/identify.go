package kafkadriver

import (
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/onceward/onceward/dedup"
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

const maxLabel = 64 // as dedup.Request.Label says

// label is the label for a claim of the message. If an earlier claim has left a record, label
// returns the record's label, so that it leads to the first attempt.
func (e *Engine) label(it *item) string {
	m := it.msg
	switch {
	case e.Label == nil:
		return ""
	case m.Found != "":
		return m.Found
	case !it.labelled:
		m.Label, it.labelled = Label(e.Label(m)), true
	}
	return m.Label
}

// meet notes the label of a record that another claim has made.
func (e *Engine) meet(m *kafkaadapter.Message, answer *dedup.Claim) {
	if found := FoundLabel(answer); e.Label != nil && found != "" {
		m.Found = found
	}
}

// FoundLabel returns the label of the record that an unsuccessful claim found.
func FoundLabel(answer *dedup.Claim) string {
	if answer.Observed == dedup.Acquired {
		return ""
	}
	return answer.Record.Label
}

// Label returns the label if a claim accepts it, and otherwise an empty one: a label only explains
// a message, and must not hold it up.
func Label(label string) string {
	if len(label) > maxLabel || !utf8.ValidString(label) {
		return ""
	}
	for _, r := range label {
		if !unicode.IsPrint(r) {
			return ""
		}
	}
	return label
}
