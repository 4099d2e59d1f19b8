package span

import (
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// LabelBytes is how long a label is: a traceparent of W3C's Trace Context, version 00. It fits into
// the 64 bytes of a record's label, and a reader of the record can search for the trace.
const LabelBytes = 55

// Label returns the label that a record keeps for a span. A span that is not sampled cannot be
// found anywhere, so its label is empty.
func Label(s trace.SpanContext) string {
	if !s.IsValid() || !s.IsSampled() {
		return ""
	}
	trc, id := s.TraceID(), s.SpanID()
	var text [LabelBytes]byte
	copy(text[:], "00-")
	hex.Encode(text[3:], trc[:])
	text[35] = '-'
	hex.Encode(text[36:], id[:])
	copy(text[52:], "-01")
	return string(text[:])
}

// Parse is the reverse of Label. For a label that Label has not made, the result is not valid.
func Parse(label string) trace.SpanContext {
	if len(label) != LabelBytes || !strings.HasPrefix(label, "00-") ||
		!strings.HasSuffix(label, "-01") || label[35] != '-' {
		return trace.SpanContext{}
	}
	trc, err1 := trace.TraceIDFromHex(label[3:35])
	id, err2 := trace.SpanIDFromHex(label[36:52])
	if err1 != nil || err2 != nil {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trc, SpanID: id,
		TraceFlags: trace.FlagsSampled, Remote: true})
}

// Links returns a link to the span of a label, or no link if the label is not that of a span.
func Links(label string) []trace.Link {
	if s := Parse(label); s.IsValid() {
		return []trace.Link{{SpanContext: s}}
	}
	return nil
}
