package dedup_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/onceward/onceward/dedup"
)

func do(t *testing.T, d *dedup.Deduper, key string, fn func(context.Context) (string, error)) (dedup.Result[string], error) {
	t.Helper()
	return dedup.Do(t.Context(), d, key, fn)
}

func returns(value string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return value, nil }
}

func mustNotRun(t *testing.T) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		t.Error("the effect ran again")
		return "", nil
	}
}

func TestDoReleasesAfterARetryableError(t *testing.T) {
	store := dedup.Memory(10)
	d := newDeduper(t, store, nil)
	errBusy := errors.New("busy")
	res, err := do(t, d, "k", func(context.Context) (string, error) { return "partial", errBusy })
	if !errors.Is(err, errBusy) || dedup.OutcomeUnknown(err) || res.Value != "partial" {
		t.Fatalf("%+v, %v", res, err)
	}
	wantState(t, store, "k", dedup.StateReleased)
	res, err = do(t, d, "k", returns("second"))
	if err != nil || res.Value != "second" || res.Attempt != 2 {
		t.Fatalf("the retry: %+v, %v", res, err)
	}
}

func TestDoStoresAndReplaysAPermanentError(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), nil)
	errNo := errors.New("card declined")
	_, err := do(t, d, "k", func(context.Context) (string, error) { return "", dedup.Permanent(errNo) })
	if !errors.Is(err, errNo) || !dedup.IsPermanent(err) || dedup.CanRetry(err) {
		t.Fatalf("the handler's own call: %v", err)
	}
	res, err := do(t, d, "k", mustNotRun(t))
	var failed *dedup.FailedError
	if !errors.As(err, &failed) || failed.Message != "card declined" || failed.Attempt != 1 {
		t.Fatalf("the replay: %v", err)
	}
	if res.Outcome != dedup.Duplicate || !dedup.IsPermanent(err) || dedup.CanRetry(err) || dedup.OutcomeUnknown(err) {
		t.Fatalf("the replay: %+v, %v", res, err)
	}
}

// A step that has failed for good fails what it is a step of: without that, the outer
// message would be retried until the inner record expires.
func TestDoRecordsAReplayedFailureOfAnInnerKey(t *testing.T) {
	store := dedup.Memory(10)
	d := newDeduper(t, store, nil)
	outer := func(ctx context.Context) (string, error) {
		res, err := dedup.Do(ctx, d, "inner", func(context.Context) (string, error) {
			return "", dedup.Permanent(errors.New("card declined"))
		})
		return res.Value, err
	}
	if _, err := do(t, d, "first", outer); !dedup.IsPermanent(err) {
		t.Fatalf("the inner key's own failure: %v", err)
	}
	_, err := do(t, d, "second", outer)
	var failed *dedup.FailedError
	if !errors.As(err, &failed) {
		t.Fatalf("the inner key's replay: %v", err)
	}
	wantState(t, store, "first", dedup.StateFailed)
	wantState(t, store, "second", dedup.StateFailed)
}

// The cut must not fall inside a character: the text goes into JSON and logs.
func TestStoredFailureIsCutAtOneKibibyteBetweenCharacters(t *testing.T) {
	for name, row := range map[string]struct {
		text string
		want int
	}{
		"shorter":           {strings.Repeat("a", 1023), 1023},
		"exact":             {strings.Repeat("a", 1024), 1024},
		"longer":            {strings.Repeat("a", 5000), 1024},
		"two-byte straddle": {"a" + strings.Repeat("é", 800), 1023},
		"four-byte":         {"abc" + strings.Repeat("🙂", 800), 1023},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeduper(t, dedup.Memory(10), nil)
			fail := func(context.Context) (string, error) { return "", dedup.Permanent(errors.New(row.text)) }
			if _, err := do(t, d, "k", fail); err == nil {
				t.Fatal("no error")
			}
			_, err := do(t, d, "k", mustNotRun(t))
			var failed *dedup.FailedError
			if !errors.As(err, &failed) || len(failed.Message) != row.want || !utf8.ValidString(failed.Message) {
				t.Fatalf("replayed %d bytes, valid %t", len(failed.Message), utf8.ValidString(failed.Message))
			}
			if !strings.HasPrefix(row.text, failed.Message) {
				t.Fatal("replayed another text")
			}
		})
	}
}

func TestDoReleasesOnPanicAndLetsItGoOn(t *testing.T) {
	store := dedup.Memory(10)
	d := newDeduper(t, store, nil)
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("recovered %v", p)
			}
		}()
		_, _ = do(t, d, "k", func(context.Context) (string, error) { panic("boom") })
	}()
	wantState(t, store, "k", dedup.StateReleased)
	if err := d.Close(t.Context()); err != nil {
		t.Fatalf("the call is still counted: %v", err)
	}
}

func TestDoReleasesOnGoexit(t *testing.T) {
	store := dedup.Memory(10)
	d := newDeduper(t, store, nil)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = do(t, d, "k", func(context.Context) (string, error) { runtime.Goexit(); return "", nil })
		t.Error("Do returned")
	}()
	<-gone
	wantState(t, store, "k", dedup.StateReleased)
	if err := d.Close(t.Context()); err != nil {
		t.Fatalf("the call is still counted: %v", err)
	}
}

// The effect has happened: a caller that has gone changes nothing about that.
func TestDoRecordsAfterItsCallerWasCancelled(t *testing.T) {
	for _, err := range []error{nil, dedup.Permanent(errors.New("no")), errors.New("retry")} {
		store := dedup.Memory(10)
		d := newDeduper(t, store, nil)
		ctx, cancel := context.WithCancel(t.Context())
		_, got := dedup.Do(ctx, d, "k", func(context.Context) (string, error) { cancel(); return "done", err })
		if !errors.Is(got, err) || dedup.OutcomeUnknown(got) {
			t.Fatalf("got %v, want %v", got, err)
		}
		want := dedup.StateReleased
		switch {
		case err == nil:
			want = dedup.StateSucceeded
		case dedup.IsPermanent(err):
			want = dedup.StateFailed
		}
		wantState(t, store, "k", want)
	}
}

func TestDoAnswersEveryOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(100)
		a, b := newDeduper(t, store, nil), newDeduper(t, store, nil)
		ok := func(context.Context) (string, error) { return "ok", nil }

		acquire(t, a, "in flight")
		res, err := do(t, b, "in flight", mustNotRun(t))
		wantErr(t, err, dedup.ErrInFlight)
		if res.Outcome != dedup.InFlight || res.Record.Remaining != 10*time.Second || !dedup.CanRetry(err) {
			t.Fatalf("%+v, %v", res, err)
		}

		first := dedup.WithFingerprint([]byte("one"))
		if _, err := dedup.Do(t.Context(), a, "mismatch", ok, first); err != nil {
			t.Fatal(err)
		}
		res, err = dedup.Do(t.Context(), b, "mismatch", mustNotRun(t), dedup.WithFingerprint([]byte("two")))
		wantErr(t, err, dedup.ErrMismatch)
		if res.Outcome != dedup.Mismatch || res.Cause != dedup.KeyReuse || res.Value != "" || dedup.CanRetry(err) {
			t.Fatalf("%+v, %v", res, err)
		}

		h := hook()
		h.setBefore(down)
		res, err = do(t, newDeduper(t, h, nil), "unknown", mustNotRun(t))
		wantErr(t, err, errNet)
		if !dedup.OutcomeUnknown(err) || res.Outcome != dedup.Unknown || dedup.CanRetry(err) {
			t.Fatalf("%+v, %v", res, err)
		}
	})
}

// uncertain answers as a store does that found a dangerous attempt dead.
type uncertain struct{ dedup.Store }

func (uncertain) Lookup(_ context.Context, ids []dedup.ID) []dedup.Answer {
	return slices.Repeat([]dedup.Answer{{Record: dedup.Record{State: dedup.StateUncertain}}}, len(ids))
}

func (uncertain) Claim(_ context.Context, reqs []dedup.ClaimRequest) []dedup.Answer {
	rec := dedup.Record{State: dedup.StateUncertain, Attempt: 3}
	return slices.Repeat([]dedup.Answer{{Outcome: dedup.Uncertain, Record: rec}}, len(reqs))
}

func TestDoDoesNotRunOnAnUncertainKey(t *testing.T) {
	d := newDeduper(t, uncertain{dedup.Memory(1)}, nil)
	res, err := do(t, d, "k", mustNotRun(t))
	wantErr(t, err, dedup.ErrUncertain)
	if res.Outcome != dedup.Uncertain || dedup.CanRetry(err) {
		t.Fatalf("%+v, %v", res, err)
	}
}

// nonsense is a store that breaks its contract.
type nonsense struct {
	dedup.Store
	answers []dedup.Answer
}

func (n nonsense) Claim(context.Context, []dedup.ClaimRequest) []dedup.Answer { return n.answers }

// Whatever a broken store says, nothing runs and nothing may be acknowledged.
func TestDoTakesNonsenseFromAStoreForUnknown(t *testing.T) {
	for name, answers := range map[string][]dedup.Answer{
		"no answer":          nil,
		"two answers":        {{Outcome: dedup.Acquired}, {Outcome: dedup.Acquired}},
		"no outcome":         {{}},
		"unheard-of outcome": {{Outcome: 77}},
		"acquired and error": {{Outcome: dedup.Acquired, Err: errNet}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDeduper(t, nonsense{dedup.Memory(1), answers}, nil)
				if _, err := do(t, d, "k", mustNotRun(t)); !dedup.OutcomeUnknown(err) {
					t.Fatalf("got %v, want an unknown outcome", err)
				}
				if c, err := d.Claim(t.Context(), "k"); c != nil || !dedup.OutcomeUnknown(err) {
					t.Fatalf("got %+v, %v", c, err)
				}
				if err := d.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
