package sqladapter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Position is a partition of a topic.
type Position struct {
	// Topic is its name.
	Topic string
	// TopicID is its UUID, as Kafka's tools write it. A topic that was deleted and created again
	// has the same name and offsets, but other messages.
	TopicID string
	// Partition is the number of the partition.
	Partition int32
}

// Span is a stretch of a partition: the offsets from From up to, but without, To.
type Span struct {
	Position
	// From is the offset of the first message.
	From int64
	// To is the offset behind the last message.
	To int64
}

// Advance is the answer of a call that moves a fence.
type Advance struct {
	// Start is the first offset whose effect has not happened yet: From, or more when a part of the
	// span is done. When Start equals To, nothing is left to do.
	Start int64
	// Gap is how many offsets lie between the stored one and From, and are skipped: retention or
	// compaction has removed them, or their messages were parked. Zero when nothing was stored.
	Gap int64
	// New says that nothing was stored for this position.
	New bool
}

// nothingStored is the previous offset of a row that has just been inserted.
const nothingStored = -1

func (s Span) found(stored map[Position]int64) Advance {
	before, moved := stored[s.Position]
	switch {
	case !moved:
		return Advance{Start: s.To}
	case before == nothingStored:
		return Advance{Start: s.From, New: true}
	}
	return Advance{Start: min(max(s.From, before), s.To), Gap: max(0, s.From-before)}
}

// inOrder checks the spans and sorts a copy of them.
func inOrder(spans []Span) ([]Span, error) {
	for _, s := range spans {
		if err := s.check(); err != nil {
			return nil, err
		}
	}
	order := slices.Clone(spans)
	slices.SortFunc(order, func(a, b Span) int { return a.compare(b.Position) })
	for i := 1; i < len(order); i++ {
		if order[i].Position == order[i-1].Position {
			return nil, inputError("spans",
				fmt.Sprintf("have %s/%d twice", order[i].Topic, order[i].Partition))
		}
	}
	return order, nil
}

func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Topic, q.Topic), cmp.Compare(p.TopicID, q.TopicID),
		cmp.Compare(p.Partition, q.Partition))
}

func (s Span) check() error {
	if err := s.Position.check(); err != nil {
		return err
	}
	switch {
	case s.From < 0:
		return inputError("from", fmt.Sprintf("is %d; offsets begin with 0", s.From))
	case s.To <= s.From:
		return inputError("to", fmt.Sprintf("is %d, not above from (%d)", s.To, s.From))
	}
	return nil
}

func (p Position) check() error {
	switch {
	case !kafkaName(p.Topic, 249):
		return inputError("Position.Topic", "must be 1 to 249 letters, digits, '.', '_' or '-'")
	case !kafkaName(p.TopicID, 64):
		return inputError("Position.TopicID",
			"must be the topic's UUID, in 1 to 64 letters, digits, '.', '_' or '-': without it a topic that is created anew would look done")
	case p.Partition < 0:
		return inputError("Position.Partition", fmt.Sprintf("is %d", p.Partition))
	}
	return nil
}

// kafkaName is Kafka's own rule for the names of topics. Nothing in them needs an escape.
func kafkaName(s string, longest int) bool {
	if len(s) < 1 || len(s) > longest {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' &&
			r != '_' && r != '-'
	})
}
