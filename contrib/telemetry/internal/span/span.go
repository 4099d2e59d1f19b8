// Package span makes the spans of this module. All of them have the same scope, an attribute that
// names what is traced, attributes from closed sets, and links to the spans whose labels are in
// records.
package span

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceward/onceward/contrib/telemetry/internal/meter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// The attributes of spans, in addition to those of OpenTelemetry's conventions for messaging.
const (
	OutcomeKey = attribute.Key("onceward.outcome")
	CauseKey   = attribute.Key("onceward.cause")
	AttemptKey = attribute.Key("onceward.attempt")
	AgeKey     = attribute.Key("onceward.duplicate.age") // seconds
	errorKey   = attribute.Key("error.type")
)

// Tracer starts spans.
type Tracer struct {
	tracer trace.Tracer
	name   attribute.KeyValue
}

// New checks the provider and the name of what is traced. The error names the package pkg.
func New(pkg string, provider trace.TracerProvider, who string) (*Tracer, error) {
	if provider == nil {
		return nil, fmt.Errorf("%s: the tracer provider is nil", pkg)
	}
	name, err := meter.Name(pkg, who)
	if err != nil {
		return nil, err
	}
	return &Tracer{tracer: provider.Tracer(meter.Scope), name: name}, nil
}

// Start starts a span.
func (t *Tracer) Start(ctx context.Context, name string,
	opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	ctx, s := t.tracer.Start(ctx, name, opts...)
	if s.IsRecording() {
		s.SetAttributes(t.name)
	}
	return ctx, s
}

// Fail sets the status of a span to an error, if there is one. The text of the error may contain a
// key, or what a user has sent, so the span gets only its kind.
func Fail(s trace.Span, err error) {
	if err != nil {
		FailAs(s, kind(err))
	}
}

// FailAs sets the status of a span to an error of a kind.
func FailAs(s trace.Span, kind string) {
	s.SetAttributes(errorKey.String(kind))
	s.SetStatus(codes.Error, "")
}

// other is the value that the conventions have for an error of no known kind.
const other = "_OTHER"

// kind returns the kind of an error, from a closed set.
func kind(err error) string {
	var input *dedup.InputError
	switch {
	case errors.Is(err, dedup.ErrInFlight):
		return "in_flight"
	case errors.Is(err, dedup.ErrMismatch):
		return "mismatch"
	case errors.Is(err, dedup.ErrUncertain):
		return "uncertain"
	case errors.Is(err, dedup.ErrLeaseLost):
		return "lease_lost"
	case errors.Is(err, dedup.ErrNoResult):
		return "no_result"
	case errors.Is(err, dedup.ErrClosed):
		return "closed"
	case errors.As(err, &input):
		return "input"
	case dedup.OutcomeUnknown(err):
		return "outcome_unknown"
	case dedup.IsPermanent(err):
		return "permanent"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline_exceeded"
	}
	return other
}

// ClaimResult returns the attributes of a claim that was answered.
func ClaimResult(outcome driver.Outcome, cause driver.Cause,
	age time.Duration) []attribute.KeyValue {
	attrs := []attribute.KeyValue{OutcomeKey.String(outcome.String())}
	if cause != "" {
		attrs = append(attrs, CauseKey.String(causeName(cause)))
	}
	if age > 0 {
		attrs = append(attrs, AgeKey.Float64(age.Seconds()))
	}
	return attrs
}

func causeName(c driver.Cause) string {
	switch c {
	case driver.BrokerRedelivery, driver.RebalanceReplay, driver.ProducerRetry, driver.KeyReuse,
		driver.Late, driver.OtherSource:
		return string(c)
	}
	return "other"
}
