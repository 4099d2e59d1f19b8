package kafka_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// spanSeen is a span that has begun or ended, as its process reports it.
type spanSeen struct {
	Ended                    bool
	By                       string // the process, or the member
	ID, Parent               string // the trace's and the span's
	Name, Kind, Status, Text string
	Attributes               map[string]string
	Links                    []linkSeen
}

type linkSeen struct {
	To         string
	Attributes map[string]string
}

// at is the position of the message that the span is about.
func (s *spanSeen) at() string {
	return s.Attributes["messaging.destination.partition.id"] + "@" +
		s.Attributes["messaging.kafka.offset"]
}

func (s *spanSeen) operation() string { return s.Attributes["messaging.operation.name"] }

// spanForwarder is a processor that reports each span at once, so that a test knows what a process
// did before it was killed.
type spanForwarder struct {
	by   string
	tell func(spanSeen)
}

func (p spanForwarder) OnStart(_ context.Context, s sdk.ReadWriteSpan) {
	p.tell(seenAs(p.by, s, false))
}
func (p spanForwarder) OnEnd(s sdk.ReadOnlySpan) {
	p.tell(seenAs(p.by, s, true))
}
func (p spanForwarder) Shutdown(context.Context) error   { return nil }
func (p spanForwarder) ForceFlush(context.Context) error { return nil }

func (p spanForwarder) provider() trace.TracerProvider {
	return sdk.NewTracerProvider(sdk.WithSpanProcessor(p))
}

func seenAs(by string, s sdk.ReadOnlySpan, ended bool) spanSeen {
	seen := spanSeen{
		Ended: ended, By: by, ID: idOfSpan(s.SpanContext()), Parent: idOfSpan(s.Parent()),
		Name: s.Name(), Kind: s.SpanKind().String(), Status: s.Status().Code.String(),
		Text: s.Status().Description + fmt.Sprint(s.Events()), Attributes: values(s.Attributes()),
	}
	for _, l := range s.Links() {
		seen.Links = append(seen.Links, linkSeen{idOfSpan(l.SpanContext), values(l.Attributes)})
	}
	return seen
}

func idOfSpan(c trace.SpanContext) string {
	if !c.IsValid() {
		return ""
	}
	return c.TraceID().String() + "/" + c.SpanID().String()
}

func values(attrs []attribute.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attrs {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// spanLine begins each line with which a process reports a span to its parent.
const spanLine = "SPAN "

func saySpan(s spanSeen) {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	fmt.Println(spanLine + string(text))
}

// traces are the spans of a story, of all its processes.
type traces struct {
	t     *testing.T
	group string

	mu        sync.Mutex
	told      []spanSeen
	sent      map[string]string // the name of a producer's span
	processes []*process
}

func (a *traces) tell(s spanSeen) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = append(a.told, s)
}

// spans returns the spans of all processes: those that have ended, and those that have not.
func (a *traces) spans() (ended, running []spanSeen) {
	a.t.Helper()
	a.mu.Lock()
	all, processes := slices.Clone(a.told), a.processes
	a.mu.Unlock()
	for _, p := range processes {
		for _, line := range p.lines() {
			if text, ok := strings.CutPrefix(line, spanLine); ok {
				var s spanSeen
				require.NoError(a.t, json.Unmarshal([]byte(text), &s))
				all = append(all, s)
			}
		}
	}
	over := map[string]bool{}
	for _, s := range all {
		if s.Ended {
			ended, over[s.ID] = append(ended, s), true
		}
	}
	for _, s := range all {
		if !s.Ended && !over[s.ID] {
			running = append(running, s)
		}
	}
	return ended, running
}

// count is how many spans of an operation there are.
func count(spans []spanSeen, operation, at, by string) (n int) {
	for i := range spans {
		if s := &spans[i]; s.operation() == operation && s.at() == at && (by == "" || s.By == by) {
			n++
		}
	}
	return n
}

// await waits until a span has ended, of a message at partition@offset.
func (a *traces) await(operation, at, by string) {
	a.t.Helper()
	eventually(a.t, 20*time.Second, func() (bool, string) {
		ended, running := a.spans()
		return count(ended, operation, at, by) > 0,
			fmt.Sprintf("no %s of %s by %q:\n%s\nrunning\n%s",
				operation, at, by, strings.Join(a.described(ended), "\n"),
				strings.Join(a.described(running), "\n"))
	})
}

// awaitRunning waits until a span has begun.
func (a *traces) awaitRunning(operation, at, by string) {
	a.t.Helper()
	eventually(a.t, 20*time.Second, func() (bool, string) {
		_, running := a.spans()
		return count(running, operation, at, by) > 0,
			fmt.Sprintf("no %s of %s by %q is running", operation, at, by)
	})
}

// described returns a text for each span, sorted. It names the span's parent and its links. Equal
// texts are returned once, because under load a message may be redelivered.
func (a *traces) described(spans []spanSeen) []string {
	a.mu.Lock()
	names := map[string]string{"": "nothing"}
	for id, name := range a.sent {
		names[id] = name
	}
	a.mu.Unlock()
	for _, s := range spans {
		if s.operation() == "claim" {
			names[s.ID] = fmt.Sprintf("claim %s by %s", s.at(), s.By)
		}
	}
	all := make([]string, len(spans))
	for i, s := range spans {
		links := make([]string, len(s.Links))
		for i, l := range s.Links {
			links[i] = names[l.To]
		}
		all[i] = fmt.Sprintf("%s %s %s by %s below %s links %q", s.Kind, s.operation(), s.at(),
			s.By, names[s.Parent], links)
		for _, also := range []string{"onceward.attempt", "onceward.cause", "error.type"} {
			if value := s.Attributes[also]; value != "" {
				all[i] += " " + value
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// want requires that all spans have ended, are sound, and are described as wanted.
func (a *traces) want(want ...string) {
	a.t.Helper()
	a.wantSound()
	ended, _ := a.spans()
	slices.Sort(want)
	assert.Equal(a.t, want, a.described(ended), "spans")
}

// wantSound requires that every span has ended, and has the attributes that
// docs/reference/telemetry.md promises for its kind, and no others.
func (a *traces) wantSound() {
	a.t.Helper()
	ended, running := a.spans()
	for _, s := range running {
		a.t.Errorf("%s of %s by %s has not ended", s.Name, s.at(), s.By)
	}
	assert.NotEmpty(a.t, ended, "there are no spans")
	for i := range ended {
		s := &ended[i]
		assert.NotContains(a.t, fmt.Sprintf("%+v", *s), "secret", "nobody else may know it")
		assert.Equal(a.t, s.operation()+" "+s.Attributes["messaging.destination.name"], s.Name)
		assert.Equal(a.t, s.Status == "Error", s.Attributes["error.type"] != "",
			"%s has the status %s and the error.type %q", s.Name, s.Status,
			s.Attributes["error.type"])
		assert.Equal(a.t, "[]", s.Text, "the text of %s", s.Name)
		var got []string
		for key := range s.Attributes {
			// the age is left out below a millisecond
			if key != "error.type" && key != "onceward.duplicate.age" {
				got = append(got, key)
			}
		}
		slices.Sort(got)
		assert.Equal(a.t, a.attributes(s), got, "attributes of %s by %s", s.Name, s.By)
	}
}

// attributes returns the names of the attributes that a span must have, sorted.
func (a *traces) attributes(s *spanSeen) []string {
	all := []string{
		"messaging.consumer.group.name", "messaging.destination.name",
		"messaging.destination.partition.id", "messaging.operation.name",
		"messaging.system", "onceward.name",
	}
	for key, want := range map[string]string{"messaging.consumer.group.name": a.group,
		"messaging.system": "kafka", "onceward.name": "payments"} {
		assert.Equal(a.t, want, s.Attributes[key], "%s of %s", key, s.Name)
	}
	_, batch := s.Attributes["messaging.batch.message_count"]
	if batch {
		all = append(all, "messaging.batch.message_count")
	} else {
		all = append(all, "messaging.kafka.offset")
	}
	switch s.operation() {
	case "process":
		all = append(all, "messaging.operation.type")
		assert.Equal(a.t, "process", s.Attributes["messaging.operation.type"], "the type of %s",
			s.Name)
		assert.Equal(a.t, "consumer", s.Kind, "the kind of %s", s.Name)
		if !batch {
			all = append(all, "onceward.attempt")
		}
	case "record":
		all = append(all, "onceward.attempt")
	case "skip":
		all = append(all, "onceward.outcome", "onceward.cause")
	}
	slices.Sort(all)
	return all
}
