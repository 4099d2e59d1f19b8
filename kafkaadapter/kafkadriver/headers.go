package kafkadriver

import (
	"strings"

	"github.com/onceward/onceward/kafkaadapter"
)

// HeadersOf is a [kafkaadapter.HeaderReader] for a client whose headers are what ours are, under a
// type of its own: it returns the headers of one of the client's messages, the Raw of ours.
type HeadersOf[H ~struct {
	Key   string
	Value []byte
}] func(raw any) []H

// Last implements kafkaadapter.HeaderReader.
func (of HeadersOf[H]) Last(raw any, name string) (value []byte, ok bool) {
	all := of(raw)
	for i := len(all) - 1; i >= 0; i-- {
		if h := kafkaadapter.Header(all[i]); strings.EqualFold(h.Key, name) {
			return h.Value, true
		}
	}
	return nil, false
}

// All implements kafkaadapter.HeaderReader.
func (of HeadersOf[H]) All(raw any) kafkaadapter.Headers {
	from := of(raw)
	all := make(kafkaadapter.Headers, len(from))
	for i, h := range from {
		all[i] = kafkaadapter.Header(h)
	}
	return all
}
