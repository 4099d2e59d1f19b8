package kafkadriver

import (
	"unicode"
	"unicode/utf8"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

const maxLabel = 64 // as dedup.Request.Label says

// label is what a claim of the message keeps. It is that of the first claim of its id, where one
// was found: then the record leads to the first of its attempts.
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

// meet notes the label of a record that somebody else has made.
func (e *Engine) meet(m *kafkaadapter.Message, answer *dedup.Claim) {
	if found := FoundLabel(answer); e.Label != nil && found != "" {
		m.Found = found
	}
}

// FoundLabel is the label of the record that a claim has met, and did not win.
func FoundLabel(answer *dedup.Claim) string {
	if answer.Observed == dedup.Acquired {
		return ""
	}
	return answer.Record.Label
}

// Label is a label as a claim can have it: one that cannot be kept is none. It explains a
// message, and must not hold it up.
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
