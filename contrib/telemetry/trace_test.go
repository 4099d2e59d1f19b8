package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
)

const (
	tracedLease = time.Minute
	secretKey   = "payments/4711-secret"
)

var errSecret = errors.New("no account 4711-secret")

// process is a Deduper of its own, with a tracer of its own, over a store that it may share.
type process struct {
	t      *testing.T
	tracer *telemetry.Tracer
	spans  *tracetest.SpanRecorder
	d      *dedup.Deduper
}

func newProcess(t *testing.T, store dedup.Store, change func(*dedup.Config),
	opts ...sdktrace.TracerProviderOption) *process {
	t.Helper()
	p := &process{t: t, spans: tracetest.NewSpanRecorder()}
	var err error
	p.tracer, err = telemetry.NewTracer(sdktrace.NewTracerProvider(append(opts,
		sdktrace.WithSpanProcessor(p.spans))...), "payments")
	require.NoError(t, err)
	cfg := dedup.Config{Namespace: "payments", Window: window, LeaseTTL: tracedLease,
		Labels: true}
	if change != nil {
		change(&cfg)
	}
	p.d, err = dedup.New(store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.d.Close(context.Background()) })
	return p
}

func (p *process) do(fn func(context.Context) (string, error),
	opts ...dedup.Option) (dedup.Result[string], error) {
	return telemetry.DoResult(p.t.Context(), p.tracer, p.d, secretKey, fn, opts...)
}

func succeeds(context.Context) (string, error) { return "ch_1", nil }
func fails(context.Context) (string, error)    { return "", errSecret }

// whole returns the spans of calls, in their order, and requires that every span has ended.
func (p *process) whole() []sdktrace.ReadOnlySpan {
	p.t.Helper()
	started, ended := len(p.spans.Started()), len(p.spans.Ended())
	assert.Equal(p.t, ended, started, "spans")
	var all []sdktrace.ReadOnlySpan
	for _, s := range p.spans.Ended() {
		if s.Name() == "onceward.do" {
			all = append(all, s)
		}
	}
	return all
}

// wantLink requires a span to have one link, to that one.
func wantLink(t *testing.T, s, to sdktrace.ReadOnlySpan) {
	t.Helper()
	links := s.Links()
	if assert.Len(t, links, 1, "%s has the links %v", describe(s), links) {
		assert.Equal(t, to.SpanContext().SpanID(), links[0].SpanContext.SpanID(),
			"%s has the links %v", describe(s), links)
		assert.Equal(t, to.SpanContext().TraceID(), links[0].SpanContext.TraceID(),
			"%s has the links %v", describe(s), links)
	}
}

func describe(s sdktrace.ReadOnlySpan) string {
	var parts []string
	for _, a := range s.Attributes() {
		if a.Key != "onceward.name" && a.Key != "onceward.duplicate.age" {
			parts = append(parts, strings.TrimPrefix(string(a.Key), "onceward.")+
				"="+a.Value.String())
		}
	}
	slices.Sort(parts)
	return s.Name() + "{" + strings.Join(parts, ",") + "} " + s.Status().Code.String()
}

func wantSpan(t *testing.T, s sdktrace.ReadOnlySpan, want string) {
	t.Helper()
	assert.Equal(t, want, describe(s), "the span")
}

// below are the names of the spans below one, in the order in which they ended.
func (p *process) below(s sdktrace.ReadOnlySpan) (names []string) {
	for _, c := range p.spans.Ended() {
		if c.Parent().SpanID() == s.SpanContext().SpanID() {
			names = append(names, describe(c))
		}
	}
	return names
}

func TestDuplicateIsLinkedToItsOriginal(t *testing.T) {
	store := dedup.Memory(10)
	p, other := newProcess(t, store, nil), newProcess(t, store, nil)
	for _, who := range []*process{p, p, other} {
		res, err := who.do(succeeds)
		require.NoError(t, err, res)
		require.Equal(t, "ch_1", res.Value, res)
	}
	calls, elsewhere := p.whole(), other.whole()
	wantSpan(t, calls[0], "onceward.do{attempt=1,outcome=acquired} Unset")
	assert.Equal(t,
		[]string{"onceward.claim{} Unset", "onceward.handle{attempt=1} Unset",
			"onceward.complete{} Unset"}, p.below(calls[0]), "below it")
	assert.Empty(t, calls[0].Links(), "the original has links")
	for _, s := range []sdktrace.ReadOnlySpan{calls[1], elsewhere[0]} {
		wantSpan(t, s, "onceward.do{attempt=1,cause=producer_retry,outcome=duplicate} Unset")
		wantLink(t, s, calls[0])
	}
	assert.Equal(t, []string{"onceward.claim{} Unset"}, p.below(calls[1]), "below the duplicate")
}

// A retry, the success and a duplicate of it all lead to the attempt that claimed first, whichever
// process they were in.
func TestRetriesAreLinkedToTheFirst(t *testing.T) {
	store := dedup.Memory(10)
	p, other := newProcess(t, store, nil), newProcess(t, store, nil)
	for range 2 {
		_, err := p.do(fails)
		require.ErrorIs(t, err, errSecret)
	}
	for range 2 {
		_, err := other.do(succeeds)
		require.NoError(t, err)
	}
	calls, elsewhere := p.whole(), other.whole()
	wantSpan(t, calls[0], "onceward.do{attempt=1,error.type=_OTHER,outcome=acquired} Error")
	wantSpan(t, calls[1], "onceward.do{attempt=2,error.type=_OTHER,outcome=acquired} Error")
	wantSpan(t, elsewhere[0], "onceward.do{attempt=3,outcome=acquired} Unset")
	wantSpan(t, elsewhere[1], "onceward.do{attempt=3,cause=producer_retry,outcome=duplicate} Unset")
	for _, s := range []sdktrace.ReadOnlySpan{calls[1], elsewhere[0], elsewhere[1]} {
		wantLink(t, s, calls[0])
	}
}

// An attempt whose process is cut off from the store is taken over when its lease has lapsed.
func TestTakeoverIsLinkedToTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := dedup.Memory(10)
		faulty := deduptest.NewFaulty(memory, nil)
		p, other := newProcess(t, faulty, nil), newProcess(t, memory, nil)
		_, err := p.do(func(ctx context.Context) (string, error) {
			faulty.SetPlan(func(deduptest.Call) deduptest.Fault {
				return deduptest.Fault{Kind: deduptest.DropRequest}
			})
			<-ctx.Done()
			time.Sleep(time.Hour / 2)
			_, err := other.do(succeeds)
			assert.NoError(t, err)
			return "", ctx.Err()
		})
		assert.Error(t, err, "no error of an attempt that was taken over")
		calls, elsewhere := p.whole(), other.whole()
		wantSpan(t, elsewhere[0], "onceward.do{attempt=2,outcome=acquired} Unset")
		wantLink(t, elsewhere[0], calls[0])
	})
}

func TestUncertainKeyIsLinkedToTheFirst(t *testing.T) {
	dangerous := func(ctx context.Context) (string, error) {
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return "", err
		}
		return fails(ctx)
	}
	for _, c := range []struct {
		name    string
		resolve []dedup.Resolution // empty: nobody is asked
		want    string
	}{
		{"and held", nil,
			"onceward.do{attempt=1,error.type=uncertain,outcome=uncertain} Error"},
		{"and found not to have happened", []dedup.Resolution{dedup.DidNotHappen()},
			"onceward.do{attempt=2,outcome=acquired} Unset"},
		// and nobody knows its value
		{"and found to have happened", []dedup.Resolution{dedup.Happened(nil)},
			"onceward.do{attempt=2,cause=producer_retry,error.type=no_result,outcome=duplicate} Error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := dedup.Memory(10)
			p := newProcess(t, store, nil)
			other := newProcess(t, store, func(cfg *dedup.Config) {
				if len(c.resolve) > 0 {
					cfg.Resolve = func(context.Context, string, dedup.Record) (dedup.Resolution,
						error) {
						return c.resolve[0], nil
					}
				}
			})
			_, err := p.do(dangerous)
			require.Error(t, err, "no error")
			_, _ = other.do(succeeds)
			s := other.whole()[0]
			wantSpan(t, s, c.want)
			wantLink(t, s, p.whole()[0])
		})
	}
}

func TestConcurrentDuplicateIsLinkedToTheFirst(t *testing.T) {
	store := dedup.Memory(10)
	p, other := newProcess(t, store, nil), newProcess(t, store, nil)
	_, err := p.do(func(ctx context.Context) (string, error) {
		for _, who := range []*process{p, other} {
			_, err := who.do(succeeds)
			assert.ErrorIs(t, err, dedup.ErrInFlight)
		}
		return succeeds(ctx)
	})
	require.NoError(t, err)
	calls := p.whole()
	first := calls[1] // it ended last
	for _, s := range []sdktrace.ReadOnlySpan{calls[0], other.whole()[0]} {
		wantSpan(t, s, "onceward.do{attempt=1,cause=producer_retry,error.type=in_flight,outcome=in_flight} Error")
		wantLink(t, s, first)
	}
}

func TestMismatchIsLinkedToTheFirst(t *testing.T) {
	p := newProcess(t, dedup.Memory(10), nil)
	for _, payload := range []string{"10", "9999"} {
		_, _ = p.do(succeeds, dedup.WithFingerprint([]byte(payload)))
	}
	calls := p.whole()
	wantSpan(t, calls[1],
		"onceward.do{attempt=1,cause=key_reuse,error.type=mismatch,outcome=mismatch} Error")
	wantLink(t, calls[1], calls[0])
}

// Where others decide what a label is, or whether there is one, nothing changes but the links.
func TestLabelsOfOthers(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*dedup.Config)
		opts   []dedup.Option
		label  string
	}{
		{"a label of the call", nil, []dedup.Option{func(r *dedup.Request) { r.Label = "order 7" }}, "order 7"},
		{"no labels are kept", func(c *dedup.Config) { c.Labels = false }, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProcess(t, dedup.Memory(10), c.change)
			_, _ = p.do(fails, c.opts...)
			_, _ = p.do(succeeds, c.opts...)
			_, err := p.do(succeeds, c.opts...)
			require.NoError(t, err)
			rec, err := p.d.Lookup(t.Context(), secretKey)
			assert.NoError(t, err, "the record is %+v", rec)
			assert.Equal(t, c.label, rec.Label, "the record is %+v", rec)
			assert.Equal(t, 2, rec.Attempt, "the record is %+v", rec)
			for _, s := range p.whole() {
				assert.Empty(t, s.Links(), "%s has links", describe(s))
			}
		})
	}
}

// A caller with OnlyNew does not get a key that already has an attempt.
func TestOnlyNewOfTheCallerIsKept(t *testing.T) {
	p := newProcess(t, dedup.Memory(10), nil)
	_, _ = p.do(fails)
	_, err := p.do(succeeds, func(r *dedup.Request) { r.OnlyNew = true })
	assert.ErrorIs(t, err, dedup.ErrInFlight)
	calls := p.whole()
	wantLink(t, calls[1], calls[0])
}

func TestObserveModeRunsRetries(t *testing.T) {
	p := newProcess(t, dedup.Memory(10), func(c *dedup.Config) { c.Mode = dedup.Observe })
	_, _ = p.do(fails)
	res, err := p.do(succeeds)
	require.NoError(t, err, "%+v", res)
	require.Equal(t, dedup.Acquired, res.Outcome, "%+v", res)
	require.Equal(t, 2, res.Attempt, "%+v", res)
	calls := p.whole()
	wantLink(t, calls[1], calls[0])
}

// A first attempt claims once, a retry once more. A call that is not sampled claims as Do does, and
// leaves nothing in the record.
func TestWhatALinkCosts(t *testing.T) {
	for _, c := range []struct {
		name   string
		sample sdktrace.Sampler
		claims []int // after each call
		label  int
	}{
		{"sampled", sdktrace.AlwaysSample(), []int{1, 3, 4}, 55},
		{"not sampled", sdktrace.NeverSample(), []int{1, 2, 3}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			claims := 0
			p := newProcess(t, dedup.Memory(10), func(cfg *dedup.Config) {
				cfg.Observer.Claimed = func(dedup.Event) { claims++ }
			}, sdktrace.WithSampler(c.sample))
			for i, fn := range []func(context.Context) (string, error){fails, succeeds, succeeds} {
				_, _ = p.do(fn)
				assert.Equal(t, c.claims[i], claims, "%d claims after call %d", claims, i+1)
			}
			rec, err := p.d.Lookup(t.Context(), secretKey)
			assert.NoError(t, err, "the record has the label")
			assert.Len(t, rec.Label, c.label, "the record has the label")
		})
	}
}

func TestPanicEndsItsSpans(t *testing.T) {
	p := newProcess(t, dedup.Memory(10), nil)
	func() {
		defer func() {
			assert.Equal(t, "at the disco", recover(), "recovered")
		}()
		_, _ = p.do(func(context.Context) (string, error) { panic("at the disco") })
	}()
	s := p.whole()[0]
	wantSpan(t, s, "onceward.do{error.type=panic} Error")
	assert.Equal(t,
		[]string{"onceward.claim{} Unset",
			"onceward.handle{attempt=1,error.type=panic} Error"}, p.below(s), "below it")
}

// The handler's own spans, and what it sends, belong to its trace.
func TestHandlerRunsUnderItsSpan(t *testing.T) {
	p := newProcess(t, dedup.Memory(10), nil)
	var under trace.SpanContext
	_, _ = p.do(func(ctx context.Context) (string, error) {
		under = trace.SpanContextFromContext(ctx)
		return "", nil
	})
	for _, s := range p.spans.Ended() {
		if s.Name() == "onceward.handle" && s.SpanContext().SpanID() == under.SpanID() {
			return
		}
	}
	t.Errorf("it ran under %v", under)
}

// No span says what was processed.
func TestSpansHaveNoKeys(t *testing.T) {
	p := newProcess(t, dedup.Memory(10), nil)
	for _, fn := range []func(context.Context) (string, error){
		fails, func(context.Context) (string, error) {
			return "", dedup.Permanent(errSecret)
		}, succeeds,
	} {
		_, _ = p.do(fn, dedup.WithScope("scope 4711-secret"))
	}
	for _, s := range p.spans.Ended() {
		assert.NotContains(t,
			fmt.Sprintf("%s %v %v %v %+v", s.Name(), s.Attributes(), s.Links(), s.Events(),
				s.Status()), "secret", "a span")
	}
	assert.Equal(t, 3, len(p.whole()), "calls")
}

func TestNewTracerRefuses(t *testing.T) {
	for _, c := range []struct {
		provider trace.TracerProvider
		name     string
		want     string
	}{{nil, "x", "provider is nil"}, {noop.NewTracerProvider(), "", "Name is empty"},
		{noop.NewTracerProvider(), strings.Repeat("x", 256), "more than 255"}} {
		_, err := telemetry.NewTracer(c.provider, c.name)
		assert.ErrorContains(t, err, c.want)
	}
}

// Do refuses the arguments that dedup.Do refuses; without a tracer it is dedup.Do.
func TestDoRefusesWhatDoRefuses(t *testing.T) {
	p := newProcess(t, dedup.Memory(10), nil)
	var input *dedup.InputError
	_, err := telemetry.Do(t.Context(), p.tracer, nil, "k", succeeds)
	assert.ErrorAs(t, err, &input, "no Deduper")
	_, err = telemetry.Do[string](t.Context(), p.tracer, p.d, "k", nil)
	assert.ErrorAs(t, err, &input, "no function")
	_, err = telemetry.Do(t.Context(), p.tracer, p.d, "", succeeds)
	assert.ErrorAs(t, err, &input, "no key")
	res, err := telemetry.DoResult(t.Context(), nil, p.d, "k", succeeds)
	assert.NoError(t, err, "no tracer: %+v", res)
	assert.Equal(t, "ch_1", res.Value, "no tracer: %+v", res)
}

// Tracing that is off costs next to nothing.
func TestDoWithoutTracing(t *testing.T) {
	p := newProcess(t, dedup.Memory(100_000), nil)
	off, err := telemetry.NewTracer(noop.NewTracerProvider(), "payments")
	require.NoError(t, err)
	ctx := t.Context() // duplicates: new keys have the store grow now and then
	plain := testing.AllocsPerRun(1000, func() { _, _ = dedup.Do(ctx, p.d, "k", succeeds) })
	none := testing.AllocsPerRun(1000, func() { _, _ = telemetry.Do(ctx, nil, p.d, "k", succeeds) })
	noop := testing.AllocsPerRun(1000, func() { _, _ = telemetry.Do(ctx, off, p.d, "k", succeeds) })
	assert.LessOrEqual(t, none, plain, "allocations without a tracer")
	assert.LessOrEqual(t, noop, plain+1, "allocations with a tracer that does nothing")
}

func BenchmarkDo(b *testing.B) {
	sampled := func(s sdktrace.Sampler) trace.TracerProvider {
		return sdktrace.NewTracerProvider(sdktrace.WithSampler(s))
	}
	for _, c := range []struct {
		name     string
		provider trace.TracerProvider
	}{
		{"alone", nil}, {"noop", noop.NewTracerProvider()},
		{"unsampled", sampled(sdktrace.NeverSample())},
		{"sampled", sampled(sdktrace.AlwaysSample())},
	} {
		b.Run(c.name, func(b *testing.B) {
			var tracer *telemetry.Tracer
			if c.provider != nil {
				var err error
				if tracer, err = telemetry.NewTracer(c.provider, "payments"); err != nil {
					b.Fatal(err)
				}
			}
			d, err := dedup.New(dedup.Memory(1000),
				dedup.Config{Namespace: "payments", Window: window, LeaseTTL: time.Minute,
					Labels: true})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := telemetry.Do(b.Context(), tracer, d, "evt_1", succeeds); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
