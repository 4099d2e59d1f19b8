package kafkadriver

import (
	"unicode"
	"unicode/utf8"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

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
