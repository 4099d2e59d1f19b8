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
	if p.tracer, err = telemetry.NewTracer(sdktrace.NewTracerProvider(append(opts,
		sdktrace.WithSpanProcessor(p.spans))...), "payments"); err != nil {
		t.Fatal(err)
	}
	cfg := dedup.Config{Namespace: "payments", Window: window, LeaseTTL: tracedLease,
		Labels: true}
	if change != nil {
		change(&cfg)
	}
	if p.d, err = dedup.New(store, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.d.Close(context.Background()) })
	return p
}

func (p *process) do(fn func(context.Context) (string, error),
	opts ...dedup.Option) (dedup.Result[string], error) {
	return telemetry.DoResult(p.t.Context(), p.tracer, p.d, secretKey, fn, opts...)
}

func succeeds(context.Context) (string, error) { return "ch_1", nil }
func fails(context.Context) (string, error)    { return "", errSecret }

// whole are the spans of calls, in their order. It insists that every span has ended.
func (p *process) whole() []sdktrace.ReadOnlySpan {
	p.t.Helper()
	if started, ended := len(p.spans.Started()), len(p.spans.Ended()); started != ended {
		p.t.Errorf("%d spans have started, %d have ended", started, ended)
	}
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
	if len(links) != 1 || links[0].SpanContext.SpanID() != to.SpanContext().SpanID() ||
		links[0].SpanContext.TraceID() != to.SpanContext().TraceID() {
		t.Errorf("%s has the links %v, want one to %v", describe(s),
			links, to.SpanContext().SpanID())
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
	if got := describe(s); got != want {
		t.Errorf("the span is %s, want %s", got, want)
	}
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
		if res, err := who.do(succeeds); err != nil || res.Value != "ch_1" {
			t.Fatal(res, err)
		}
	}
	calls, elsewhere := p.whole(), other.whole()
	wantSpan(t, calls[0], "onceward.do{attempt=1,outcome=acquired} Unset")
	if got := p.below(calls[0]); !slices.Equal(got,
		[]string{"onceward.claim{} Unset", "onceward.handle{attempt=1} Unset",
			"onceward.complete{} Unset"}) {
		t.Errorf("below it are %v", got)
	}
	if len(calls[0].Links()) != 0 {
		t.Errorf("the original has links: %v", calls[0].Links())
	}
	for _, s := range []sdktrace.ReadOnlySpan{calls[1], elsewhere[0]} {
		wantSpan(t, s, "onceward.do{attempt=1,cause=producer_retry,outcome=duplicate} Unset")
		wantLink(t, s, calls[0])
	}
	if got := p.below(calls[1]); !slices.Equal(got, []string{"onceward.claim{} Unset"}) {
		t.Errorf("below the duplicate are %v", got)
	}
}

// A retry, the success and a duplicate of it all lead to the attempt that claimed first, whichever
// process they were in.
func TestRetriesAreLinkedToTheFirst(t *testing.T) {
	store := dedup.Memory(10)
	p, other := newProcess(t, store, nil), newProcess(t, store, nil)
	for range 2 {
		if _, err := p.do(fails); !errors.Is(err, errSecret) {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := other.do(succeeds); err != nil {
			t.Fatal(err)
		}
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
			if _, err := other.do(succeeds); err != nil {
				t.Error(err)
			}
			return "", ctx.Err()
		})
		if err == nil {
			t.Error("no error of an attempt that was taken over")
		}
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
			if _, err := p.do(dangerous); err == nil {
				t.Fatal("no error")
			}
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
			if _, err := who.do(succeeds); !errors.Is(err, dedup.ErrInFlight) {
				t.Error(err)
			}
		}
		return succeeds(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
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
			if _, err := p.do(succeeds, c.opts...); err != nil {
				t.Fatal(err)
			}
			rec, err := p.d.Lookup(t.Context(), secretKey)
			if err != nil || rec.Label != c.label || rec.Attempt != 2 {
				t.Errorf("the record is %+v, %v", rec, err)
			}
			for _, s := range p.whole() {
				if len(s.Links()) != 0 {
					t.Errorf("%s has links", describe(s))
				}
			}
		})
	}
}

// A caller who wants a key that has no attempt yet gets no other.
func TestOnlyNewOfTheCallerIsKept(t *testing.T) {
	p := newProcess(t, dedup.Memory(10), nil)
	_, _ = p.do(fails)
	_, err := p.do(succeeds, func(r *dedup.Request) { r.OnlyNew = true })
	if !errors.Is(err, dedup.ErrInFlight) {
		t.Errorf("%v, want that it is left to others", err)
	}
	calls := p.whole()
	wantLink(t, calls[1], calls[0])
}

func TestObserveModeRunsRetries(t *testing.T) {
	p := newProcess(t, dedup.Memory(10), func(c *dedup.Config) { c.Mode = dedup.Observe })
	_, _ = p.do(fails)
	if res, err := p.do(succeeds); err != nil || res.Outcome != dedup.Acquired || res.Attempt != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
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
				if _, _ = p.do(fn); claims != c.claims[i] {
					t.Errorf("%d claims after call %d, want %d", claims, i+1, c.claims[i])
				}
			}
			rec, err := p.d.Lookup(t.Context(), secretKey)
			if err != nil || len(rec.Label) != c.label {
				t.Errorf("the record has the label %q: %v", rec.Label, err)
			}
		})
	}
}

func TestPanicEndsItsSpans(t *testing.T) {
	p := newProcess(t, dedup.Memory(10), nil)
	func() {
		defer func() {
			if v := recover(); v != "at the disco" {
				t.Errorf("recovered %v", v)
			}
		}()
		_, _ = p.do(func(context.Context) (string, error) { panic("at the disco") })
	}()
	s := p.whole()[0]
	wantSpan(t, s, "onceward.do{error.type=panic} Error")
	if got := p.below(s); !slices.Equal(got,
		[]string{"onceward.claim{} Unset", "onceward.handle{attempt=1,error.type=panic} Error"}) {
		t.Errorf("below it are %v", got)
	}
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
		if text := fmt.Sprintf("%s %v %v %v %+v", s.Name(), s.Attributes(), s.Links(), s.Events(),
			s.Status()); strings.Contains(text, "secret") {
			t.Errorf("a span says %s", text)
		}
	}
	if n := len(p.whole()); n != 3 {
		t.Errorf("%d calls", n)
	}
}

func TestNewTracerRefuses(t *testing.T) {
	for _, c := range []struct {
		provider trace.TracerProvider
		name     string
		want     string
	}{{nil, "x", "provider is nil"}, {noop.NewTracerProvider(), "", "Name is empty"},
		{noop.NewTracerProvider(), strings.Repeat("x", 256), "more than 255"}} {
		if _, err := telemetry.NewTracer(c.provider, c.name); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q in it", err, c.want)
		}
	}
}

// Do refuses the arguments that dedup.Do refuses; without a tracer it is dedup.Do.
func TestDoRefusesWhatDoRefuses(t *testing.T) {
	p := newProcess(t, dedup.Memory(10), nil)
	var input *dedup.InputError
	if _, err := telemetry.Do(t.Context(), p.tracer, nil, "k", succeeds); !errors.As(err, &input) {
		t.Errorf("no Deduper: %v", err)
	}
	if _, err := telemetry.Do[string](t.Context(), p.tracer, p.d,
		"k", nil); !errors.As(err, &input) {
		t.Errorf("no function: %v", err)
	}
	if _, err := telemetry.Do(t.Context(), p.tracer, p.d, "", succeeds); !errors.As(err, &input) {
		t.Errorf("no key: %v", err)
	}
	if res, err := telemetry.DoResult(t.Context(), nil, p.d, "k", succeeds); err != nil ||
		res.Value != "ch_1" {
		t.Errorf("no tracer: %+v, %v", res, err)
	}
}

// Tracing that is off costs next to nothing.
func TestDoWithoutTracing(t *testing.T) {
	p := newProcess(t, dedup.Memory(100_000), nil)
	off, err := telemetry.NewTracer(noop.NewTracerProvider(), "payments")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context() // duplicates: new keys have the store grow now and then
	plain := testing.AllocsPerRun(1000, func() { _, _ = dedup.Do(ctx, p.d, "k", succeeds) })
	none := testing.AllocsPerRun(1000, func() { _, _ = telemetry.Do(ctx, nil, p.d, "k", succeeds) })
	noop := testing.AllocsPerRun(1000, func() { _, _ = telemetry.Do(ctx, off, p.d, "k", succeeds) })
	if none > plain || noop > plain+1 {
		t.Errorf("allocations: %v alone, %v without a tracer, %v with one that does nothing",
			plain, none, noop)
	}
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
