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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func do(t *testing.T, d *dedup.Deduper, key string,
	fn func(context.Context) (string, error)) (dedup.Result[string], error) {
	t.Helper()
	return dedup.DoResult(t.Context(), d, key, fn)
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
	require.ErrorIs(t, err, errBusy)
	require.False(t, dedup.OutcomeUnknown(err))
	require.Equal(t, "partial", res.Value)
	wantState(t, store, "k", driver.StateReleased)
	res, err = do(t, d, "k", returns("second"))
	require.NoError(t, err)
	require.Equal(t, "second", res.Value, "the retry")
	require.Equal(t, 2, res.Attempt)
}

func TestDoStoresAndReplaysAPermanentError(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), nil)
	errNo := errors.New("card declined")
	_, err := do(t, d, "k", func(context.Context) (string, error) {
		return "", dedup.Permanent(errNo)
	})
	require.ErrorIs(t, err, errNo, "the handler's own call")
	require.True(t, dedup.IsPermanent(err) && !dedup.CanRetry(err), "the handler's own call: %v",
		err)
	res, err := do(t, d, "k", mustNotRun(t))
	var failed *dedup.FailedError
	require.ErrorAs(t, err, &failed, "the replay")
	require.Equal(t, "card declined", failed.Message)
	require.Equal(t, 1, failed.Attempt)
	require.Equal(t, dedup.Duplicate, res.Outcome, "the replay")
	require.True(t, dedup.IsPermanent(err) && !dedup.CanRetry(err) && !dedup.OutcomeUnknown(err),
		"the replay: %+v, %v", res, err)
}

// When an inner key has failed for good, its outer message fails for good, too. Otherwise the outer
// message would be retried until the inner record expires.
func TestDoRecordsAReplayedFailureOfAnInnerKey(t *testing.T) {
	store := dedup.Memory(10)
	d := newDeduper(t, store, nil)
	outer := func(ctx context.Context) (string, error) {
		res, err := dedup.DoResult(ctx, d, "inner", func(context.Context) (string, error) {
			return "", dedup.Permanent(errors.New("card declined"))
		})
		return res.Value, err
	}
	_, err := do(t, d, "first", outer)
	require.True(t, dedup.IsPermanent(err), "the inner key's own failure: %v", err)
	_, err = do(t, d, "second", outer)
	var failed *dedup.FailedError
	require.ErrorAs(t, err, &failed, "the inner key's replay")
	wantState(t, store, "first", driver.StateFailed)
	wantState(t, store, "second", driver.StateFailed)
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
			fail := func(context.Context) (string, error) {
				return "", dedup.Permanent(errors.New(row.text))
			}
			_, err := do(t, d, "k", fail)
			require.Error(t, err)
			_, err = do(t, d, "k", mustNotRun(t))
			var failed *dedup.FailedError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, row.want, len(failed.Message))
			require.True(t, utf8.ValidString(failed.Message))
			require.True(t, strings.HasPrefix(row.text, failed.Message), "replayed another text")
		})
	}
}

func TestDoReleasesOnPanicAndLetsItGoOn(t *testing.T) {
	store := dedup.Memory(10)
	d := newDeduper(t, store, nil)
	func() {
		defer func() {
			assert.Equal(t, "boom", recover())
		}()
		_, _ = do(t, d, "k", func(context.Context) (string, error) { panic("boom") })
	}()
	wantState(t, store, "k", driver.StateReleased)
	require.NoError(t, d.Close(t.Context()), "the call is still counted")
}

func TestDoReleasesOnGoexit(t *testing.T) {
	store := dedup.Memory(10)
	d := newDeduper(t, store, nil)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = do(t, d, "k", func(context.Context) (string, error) {
			runtime.Goexit()
			return "", nil
		})
		t.Error("Do returned")
	}()
	<-gone
	wantState(t, store, "k", driver.StateReleased)
	require.NoError(t, d.Close(t.Context()), "the call is still counted")
}

// The effect has happened, so it is recorded even if the caller has gone.
func TestDoRecordsAfterItsCallerWasCancelled(t *testing.T) {
	for err, want := range map[error]driver.State{
		nil:                 driver.StateSucceeded,
		errors.New("retry"): driver.StateReleased,
	} {
		store := dedup.Memory(10)
		d := newDeduper(t, store, nil)
		ctx, cancel := context.WithCancel(t.Context())
		_, got := dedup.Do(ctx, d, "k", func(context.Context) (string, error) {
			cancel()
			return "done", err
		})
		require.ErrorIs(t, got, err)
		require.False(t, dedup.OutcomeUnknown(got))
		wantState(t, store, "k", want)
	}
}

// A handler wraps the end of its own context in Permanent. Do must not believe that: the message
// would be acknowledged, and its effect would never happen.
func TestDoDoesNotBelieveALateFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, failure := range map[string]error{
			"permanent": dedup.Permanent(context.DeadlineExceeded),
			"wrapped":   errors.Join(dedup.Permanent(context.DeadlineExceeded)),
			"replayed":  errors.Join(&dedup.FailedError{}, context.DeadlineExceeded),
		} {
			for _, dangerous := range []bool{false, true} {
				store := dedup.Memory(10)
				d := newDeduper(t, store, nil)
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				_, err := dedup.Do(ctx, d, "k", func(ctx context.Context) (string, error) {
					if dangerous {
						require.NoError(t, dedup.MarkIrreversible(ctx))
					}
					<-ctx.Done()
					return "", failure
				})
				require.ErrorIs(t, err, context.DeadlineExceeded, name)
				require.ErrorContains(t, err, failure.Error(), name)
				require.False(t, dedup.IsPermanent(err), name)
				require.False(t, dedup.CanAck(err), name)
				require.True(t, dedup.CanRetry(err), name)
				if dangerous {
					wantState(t, store, "k", driver.StateUncertain)
					continue
				}
				wantState(t, store, "k", driver.StateReleased)
				_, err = do(t, d, "k", returns("second"))
				require.NoError(t, err, name)
			}
		}
	})
}

func TestDoAnswersEveryOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(100)
		a, b := newDeduper(t, store, nil), newDeduper(t, store, nil)
		ok := func(context.Context) (string, error) { return "ok", nil }

		acquire(t, a, "in flight")
		res, err := do(t, b, "in flight", mustNotRun(t))
		require.ErrorIs(t, err, dedup.ErrInFlight)
		require.Equal(t, dedup.InFlight, res.Outcome)
		require.Equal(t, 10*time.Second, res.Record.Remaining)
		require.True(t, dedup.CanRetry(err))

		first := dedup.WithFingerprint([]byte("one"))
		_, err = dedup.Do(t.Context(), a, "mismatch", ok, first)
		require.NoError(t, err)
		res, err = dedup.DoResult(t.Context(), b, "mismatch", mustNotRun(t),
			dedup.WithFingerprint([]byte("two")))
		require.ErrorIs(t, err, dedup.ErrMismatch)
		require.Equal(t, dedup.Mismatch, res.Outcome)
		require.Equal(t, driver.KeyReuse, res.Cause)
		require.Empty(t, res.Value)
		require.False(t, dedup.CanRetry(err))

		h := hook()
		h.setBefore(down)
		res, err = do(t, newDeduper(t, h, nil), "unknown", mustNotRun(t))
		require.ErrorIs(t, err, errNet)
		require.Equal(t, dedup.Unknown, res.Outcome)
		require.True(t, dedup.OutcomeUnknown(err) && !dedup.CanRetry(err), "%+v, %v", res, err)
	})
}

// uncertain answers as a store does whose key is uncertain after a dead attempt.
type uncertain struct{ dedup.Store }

func (uncertain) Lookup(_ context.Context, ids []driver.ID) []driver.Answer {
	return slices.Repeat([]driver.Answer{{Record: dedup.Record{State: driver.StateUncertain}}},
		len(ids))
}

func (uncertain) Claim(_ context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	rec := dedup.Record{State: driver.StateUncertain, Attempt: 3}
	return slices.Repeat([]driver.Answer{{Outcome: dedup.Uncertain, Record: rec}}, len(reqs))
}

func TestDoDoesNotRunOnAnUncertainKey(t *testing.T) {
	d := newDeduper(t, uncertain{dedup.Memory(1)}, nil)
	res, err := do(t, d, "k", mustNotRun(t))
	require.ErrorIs(t, err, dedup.ErrUncertain)
	require.Equal(t, dedup.Uncertain, res.Outcome)
	require.False(t, dedup.CanRetry(err))
}

// nonsense is a store that breaks its contract.
type nonsense struct {
	dedup.Store
	answers []driver.Answer
}

func (n nonsense) Claim(context.Context, []driver.ClaimRequest) []driver.Answer { return n.answers }

// Whatever a broken store answers, no effect runs and nothing may be acknowledged.
func TestDoTakesNonsenseFromAStoreForUnknown(t *testing.T) {
	for name, answers := range map[string][]driver.Answer{
		"no answer":          nil,
		"two answers":        {{Outcome: dedup.Acquired}, {Outcome: dedup.Acquired}},
		"no outcome":         {{}},
		"unheard-of outcome": {{Outcome: 77}},
		"acquired and error": {{Outcome: dedup.Acquired, Err: errNet}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDeduper(t, nonsense{dedup.Memory(1), answers}, nil)
				_, err := do(t, d, "k", mustNotRun(t))
				require.True(t, dedup.OutcomeUnknown(err), "got %v, want an unknown outcome", err)
				c, err := d.Claim(t.Context(), "k")
				require.Nil(t, c)
				require.True(t, dedup.OutcomeUnknown(err))
				require.NoError(t, d.Close(t.Context()))
			})
		})
	}
}
