package telemetry

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/onceward/onceward/contrib/telemetry/internal/span"
	"github.com/onceward/onceward/dedup"
)

// Tracer starts the spans of [Do]. Make it with [NewTracer]. It is safe for concurrent use.
type Tracer struct{ spans *span.Tracer }

// NewTracer makes a tracer with the provider, under the scope
// github.com/onceward/onceward/contrib/telemetry. The name means what Config.Name means. A nil
// provider and a bad name are errors.
func NewTracer(provider trace.TracerProvider, name string) (*Tracer, error) {
	spans, err := span.New("telemetry", provider, name)
	if err != nil {
		return nil, err
	}
	return &Tracer{spans}, nil
}

// Do is [dedup.Do] with spans. Below the span onceward.do there are three spans: onceward.claim;
// onceward.handle around fn, whose context has that span; and onceward.complete, from the return of
// fn until its record is written.
//
// With [dedup.Config].Labels, and unless the call has a label of its own, the record keeps the
// context of the span that claimed first, if that span is sampled. This takes 55 bytes of label. A
// duplicate, a call that finds the key in flight, a mismatch, an uncertain key, a retry and a
// takeover then have a link to that span, also in another process. To find the label before it is
// overwritten, Do first claims without starting another attempt ([dedup.Request.OnlyNew]). So a
// retry costs one more claim, and the Observer gets one more event, in flight. redisadapter's
// layout Compact keeps no label of a finished key, so its duplicates have no link. In Observe mode
// Do does not learn which calls would have been skipped, and only retries have links.
//
// No attribute contains a key, a label or the text of an error. If the span is not sampled, all of
// this is left out, and Do costs only the start of that span. With a nil tracer, Do is [dedup.Do].
func Do[T any](ctx context.Context, t *Tracer, d *dedup.Deduper, key string,
	fn func(context.Context) (T, error), opts ...dedup.Option) (T, error) {
	res, err := DoResult(ctx, t, d, key, fn, opts...)
	return res.Value, err
}

// DoResult does what [dedup.DoResult] does, with the spans of [Do].
func DoResult[T any](ctx context.Context, t *Tracer, d *dedup.Deduper, key string,
	fn func(context.Context) (T, error), opts ...dedup.Option) (dedup.Result[T], error) {
	if t == nil || d == nil || ctx == nil || fn == nil { // dedup.Do says which
		return dedup.DoResult(ctx, d, key, fn, opts...)
	}
	ctx, whole := t.spans.Start(ctx, "onceward.do")
	if !whole.IsRecording() {
		return dedup.DoResult(ctx, d, key, fn, opts...)
	}
	defer whole.End() // also when fn panics
	c := &traced[T]{ctx: ctx, spans: t.spans, whole: whole, fn: fn}
	_, c.claim = t.spans.Start(ctx, "onceward.claim")
	defer c.claim.End()
	res, err := c.do(d, key, opts)
	if c.complete != nil {
		span.Fail(c.complete, err)
		c.complete.End()
	} else {
		span.Fail(c.claim, err)
	}
	whole.SetAttributes(span.ClaimResult(res.Outcome, res.Cause, res.Record.Age)...)
	if attempt := max(res.Attempt, res.Record.Attempt); attempt > 0 {
		whole.SetAttributes(span.AttemptKey.Int(attempt))
	}
	if res.Outcome != dedup.Acquired {
		c.link(res.Record.Label)
	}
	span.Fail(whole, err)
	return res, err
}

// traced is one call of Do.
type traced[T any] struct {
	ctx   context.Context // of the span of the whole call
	spans *span.Tracer
	fn    func(context.Context) (T, error)

	whole, claim trace.Span
	complete     trace.Span // once fn has returned
	linked       bool
}

// link links the span of the whole call to the span that a record has kept, unless that is the same
// span.
func (c *traced[T]) link(label string) {
	first := span.Parse(label)
	if c.linked || !first.IsValid() || first.SpanID() == c.whole.SpanContext().SpanID() {
		return
	}
	c.linked = true
	c.whole.AddLink(trace.Link{SpanContext: first})
}

func (c *traced[T]) do(d *dedup.Deduper, key string, opts []dedup.Option) (dedup.Result[T], error) {
	label := span.Label(c.whole.SpanContext())
	if label == "" || !d.Config().Labels {
		return dedup.DoResult(c.ctx, d, key, c.effect, opts...)
	}
	ours := false // the label, and OnlyNew
	first := func(r *dedup.Request) {
		if r.Label != "" {
			return
		}
		r.Label, ours = label, !r.OnlyNew
		r.OnlyNew = true
	}
	res, err := dedup.DoResult(c.ctx, d, key, c.effect, append(slices.Clip(opts), first)...)
	if !ours || c.complete != nil || !left(d, &res.Record, err) {
		return res, err
	}
	if span.Parse(res.Record.Label).IsValid() {
		label = res.Record.Label // the first attempt's stays on record
		c.link(label)
	}
	again := func(r *dedup.Request) { r.Label = label }
	return dedup.DoResult(c.ctx, d, key, c.effect, append(slices.Clip(opts), again)...)
}

// left reports whether OnlyNew made a difference: without it, the claim would have got the key, or
// Config.Resolve would have been asked.
func left(d *dedup.Deduper, rec *dedup.Record, err error) bool {
	if errors.Is(err, dedup.ErrUncertain) {
		return d.Config().Resolve != nil
	}
	return errors.Is(err, dedup.ErrInFlight) && rec.Attempt > 0 && rec.Remaining <= 0
}

// effect runs fn under a span.
func (c *traced[T]) effect(ctx context.Context) (T, error) {
	c.claim.End()
	ctx, handle := c.spans.Start(ctx, "onceward.handle")
	returned := false
	defer func() {
		if !returned { // it panicked, or called runtime.Goexit
			span.FailAs(handle, "panic")
			span.FailAs(c.whole, "panic")
		}
		handle.End()
	}()
	if a, ok := dedup.FromContext(ctx); ok {
		handle.SetAttributes(span.AttemptKey.Int(a.Number))
	}
	value, err := c.fn(ctx)
	returned = true
	span.Fail(handle, err)
	_, c.complete = c.spans.Start(c.ctx, "onceward.complete")
	return value, err
}
