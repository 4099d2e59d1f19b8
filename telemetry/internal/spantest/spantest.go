// Package spantest is what the tests of two clients of Kafka expect of their spans.
package spantest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceward/onceward/dedup"
)

// Traceparents: of a message's producer, and of the claim of its first attempt.
const (
	Producer = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	First    = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

// describe is a span with its parent's and its links' last digits.
func describe(s sdk.ReadOnlySpan) string {
	last := func(c trace.SpanContext) string {
		if !c.IsValid() {
			return "none"
		}
		return c.SpanID().String()[12:]
	}
	var links []string
	for _, l := range s.Links() {
		links = append(links, last(l.SpanContext))
	}
	return fmt.Sprintf("%s %s below %s links %v %s", s.SpanKind(), s.Name(), last(s.Parent()), links, s.Status().Code)
}

// Want compares the spans that have ended, none of which may say "secret", and that there are no others.
func Want(t testing.TB, spans *tracetest.SpanRecorder, want ...string) {
	t.Helper()
	var got []string
	for _, s := range spans.Ended() {
		got = append(got, describe(s))
		if text := fmt.Sprint(s.Attributes(), s.Links(), s.Events(), s.Status()); strings.Contains(text, "secret") {
			t.Errorf("%s says %s", s.Name(), text)
		}
	}
	if !slices.Equal(got, want) || len(spans.Started()) != len(want) {
		t.Errorf("%d have started; ended have\n%s\nwant\n%s", len(spans.Started()), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Client is one of Kafka, whose configuration is traced; M is its message.
type Client[M any] struct {
	// Deliver makes a message whose producer's span is [Producer], as an attempt finds it.
	Deliver    func(attempt int, label, found string) M
	Handle     func(M)
	Skipped    func(M, dedup.Cause, time.Duration)
	Recorded   func(M, time.Duration)
	Unrecorded func(M, error)
	Parked     func(M, error)
}

// Messages tells what a message goes through, and where each of its spans hangs: 02b7 is its producer,
// 3331 the claim of the first attempt. start returns a client with spans of its own.
func Messages[M any](t *testing.T, start func(*testing.T) (*Client[M], *tracetest.SpanRecorder)) {
	attempt := func(n int, label, found string) func(*Client[M]) {
		return func(c *Client[M]) {
			m := c.Deliver(n, label, found)
			c.Handle(m)
			c.Recorded(m, time.Second)
		}
	}
	for _, story := range []struct {
		name string
		do   func(*Client[M])
		want []string
	}{
		{"the first attempt", attempt(1, First, ""), []string{"consumer process orders below 3331 links [] Unset", "client settle orders below 3331 links [] Unset"}},
		{
			"a retry in the same process", attempt(2, First, ""),
			[]string{"consumer process orders below 02b7 links [3331] Unset", "client settle orders below 3331 links [] Unset"},
		},
		{"a takeover", attempt(2, Producer, First), []string{"consumer process orders below 02b7 links [3331] Unset", "client settle orders below 3331 links [] Unset"}},
		{
			"a duplicate", func(c *Client[M]) { c.Skipped(c.Deliver(0, Producer, First), dedup.ProducerRetry, time.Hour) },
			[]string{"internal skip orders below 02b7 links [3331] Unset"},
		},
		{
			"a label of somebody else's", func(c *Client[M]) { c.Skipped(c.Deliver(0, "order 7", "order 7"), dedup.Late, 0) },
			[]string{"internal skip orders below 02b7 links [] Unset"},
		},
		{
			"a mismatch", func(c *Client[M]) { c.Parked(c.Deliver(0, Producer, First), dedup.ErrMismatch) },
			[]string{"client park orders below 02b7 links [3331] Error"},
		},
		{
			"an effect that is not on record", func(c *Client[M]) { c.Unrecorded(c.Deliver(1, First, ""), dedup.ErrLeaseLost) },
			[]string{"client settle orders below 3331 links [] Error"},
		},
	} {
		t.Run(story.name, func(t *testing.T) {
			client, spans := start(t)
			story.do(client)
			Want(t, spans, story.want...)
		})
	}
}

// Attributes are those of the spans of a third attempt and of a duplicate whose cause nobody knows.
func Attributes(t testing.TB, spans *tracetest.SpanRecorder) {
	t.Helper()
	var got []string
	for _, s := range spans.Ended() {
		for _, a := range s.Attributes() {
			got = append(got, string(a.Key)+"="+a.Value.String())
		}
	}
	want := []string{
		"onceward.name=payments", "messaging.system=kafka", "messaging.operation.name=process", "messaging.destination.name=orders",
		"messaging.destination.partition.id=7", "messaging.kafka.offset=42", "messaging.operation.type=process",
		"messaging.consumer.group.name=payers", "onceward.attempt=3",
		"onceward.name=payments", "messaging.system=kafka", "messaging.operation.name=skip", "messaging.destination.name=orders",
		"messaging.destination.partition.id=7", "messaging.kafka.offset=42", "messaging.consumer.group.name=payers",
		"onceward.outcome=duplicate", "onceward.cause=other", "onceward.duplicate.age=3600",
	}
	if !slices.Equal(got, want) {
		t.Errorf("attributes\n%q\nwant\n%q", got, want)
	}
}
