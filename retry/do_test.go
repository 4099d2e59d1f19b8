package retry_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

// failing returns a function that fails n times with err, and the times at which it was called.
func failing(n int, err error) (func(context.Context, int) (string, error), *[]time.Duration) {
	start, calls := time.Now(), new([]time.Duration)
	return func(_ context.Context, attempt int) (string, error) {
		*calls = append(*calls, time.Since(start))
		if attempt != len(*calls) {
			return "", retry.Permanent(fmt.Errorf("attempt %d is the %d. call",
				attempt, len(*calls)))
		}
		if attempt <= n {
			return "partial", err
		}
		return "done", nil
	}, calls
}

func TestDoTriesAgainAfterJitteredWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fn, calls := failing(3, errNetwork)
		p := retry.Policy{Attempts: 4,
			Backoff: retry.Backoff{Base: time.Second, Cap: 10 * time.Second, Jitter: retry.Equal}}
		v, err := retry.Do(t.Context(), p, fn)
		require.Equal(t, "done", v)
		require.NoError(t, err)
		for i, window := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			gap := (*calls)[i+1] - (*calls)[i]
			assert.GreaterOrEqual(t, gap, window/2, "wait %d", i+1)
			assert.LessOrEqual(t, gap, window, "wait %d", i+1)
		}
	})
}

func TestDoGivesUp(t *testing.T) {
	empty, _ := retry.NewBudget(retry.BudgetConfig{Ratio: 0.01, Floor: 0.5})
	for _, row := range []struct {
		name   string
		policy retry.Policy
		ctx    func(context.Context) (context.Context, context.CancelFunc)
		err    error
		calls  int
		reason retry.Reason
	}{
		{name: "attempts", err: errNetwork, calls: 3, reason: retry.AttemptsUsed},
		{name: "one attempt", policy: retry.Policy{Attempts: 1}, err: errNetwork, calls: 1,
			reason: retry.AttemptsUsed},
		{name: "budget", policy: retry.Policy{Budget: empty}, err: errNetwork,
			calls: 1, reason: retry.BudgetEmpty},
		{name: "elapsed", policy: retry.Policy{Attempts: 100, Elapsed: 10 * time.Second,
			Backoff: retry.Backoff{Base: 4 * time.Second, Cap: 4 * time.Second,
				Jitter: retry.Equal}},
			err: errNetwork, calls: 0, reason: retry.ElapsedNear},
		{name: "asked too long", err: retry.After(errNetwork, 5*time.Minute),
			calls: 1, reason: retry.ElapsedNear},
		{name: "deadline", err: retry.After(errNetwork, time.Minute), calls: 1,
			reason: retry.DeadlineNear,
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 30*time.Second)
			}},
		{name: "not allowed", err: errNetwork, calls: 1, reason: retry.NotAllowed,
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return retry.NoRetry(ctx), func() {}
			}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if row.ctx != nil {
					c, cancel := row.ctx(ctx)
					defer cancel()
					ctx = c
				}
				start := time.Now()
				var last retry.Event
				row.policy.OnRetry = func(e retry.Event) { last = e }
				fn, calls := failing(1000, row.err)
				v, err := retry.Do(ctx, row.policy, fn)
				e := gaveUp(t, err, row.reason)
				assert.Empty(t, v)
				assert.ErrorIs(t, err, errNetwork)
				assert.Equal(t, len(*calls), e.Attempts)
				assert.True(t, row.calls == 0 || len(*calls) == row.calls, "%d calls, want %d",
					len(*calls), row.calls)
				assert.Equal(t, row.reason, last.GaveUp)
				assert.Equal(t, len(*calls), last.Attempt)
				assert.Zero(t, last.Delay)
				assert.ErrorIs(t, last.Err, errNetwork)
				if row.reason == retry.DeadlineNear || row.reason == retry.ElapsedNear {
					assert.Less(t, time.Since(start), 10*time.Second, "it slept into the deadline")
				}
			})
		})
	}
}

func TestDoReturnsWhatIsFinalAsItIs(t *testing.T) {
	custom := errors.New("custom")
	cert := fmt.Errorf("dial: %w", x509.UnknownAuthorityError{})
	permanent := retry.Permanent(errNetwork)
	for _, row := range []struct {
		name  string
		err   error
		retry func(error) bool
		calls int
	}{
		{"permanent", permanent, nil, 1},
		{"permanent wins over the policy's word", permanent, func(error) bool { return true }, 1},
		{"permanent around after", retry.Permanent(retry.After(errNetwork, time.Second)), nil, 1},
		{"after around permanent", retry.After(permanent, time.Second), nil, 1},
		{"certificate", cert, nil, 1},
		{"cancelled by somebody else", context.Canceled, nil, 1},
		{"no permit", retry.ErrOpen, nil, 1},
		{"the policy's word", custom, func(err error) bool { return !errors.Is(err, custom) }, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			fn, calls := failing(1000, row.err)
			_, err := retry.Do(t.Context(), retry.Policy{Retryable: row.retry}, fn)
			assert.True(t, err == row.err, err) //nolint:errorlint // the very error
			assert.Len(t, *calls, row.calls)
		})
	}
}

func TestAfterIsTheLeastWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fn, calls := failing(1, retry.After(errNetwork, 20*time.Second))
		p := retry.Policy{Backoff: steady, Retryable: func(error) bool { return false }}
		_, err := retry.Do(t.Context(), p, fn)
		require.NoError(t, err)
		at := (*calls)[1]
		assert.GreaterOrEqual(t, at, 20*time.Second+steady.Cap/2, "the wait")
		assert.LessOrEqual(t, at, 20*time.Second+steady.Cap)
		fn, calls = failing(1, retry.After(errNetwork, -time.Hour))
		_, err = retry.Do(t.Context(), retry.Policy{Backoff: steady}, fn)
		require.NoError(t, err)
		at = (*calls)[1]
		assert.GreaterOrEqual(t, at, steady.Cap/2, "a negative wait")
		assert.LessOrEqual(t, at, steady.Cap)
	})
}

// Each attempt gets its share of the time that is left, so the last one has some, too.
func TestTimeoutsShrinkInward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const none = time.Nanosecond
		for _, row := range []struct {
			name   string
			policy retry.Policy
			within time.Duration
			want   []time.Duration
		}{
			{"shares of the deadline", retry.Policy{Attempts: 3}, 9 * time.Second,
				[]time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second}},
			{"Elapsed cuts nothing short", retry.Policy{Attempts: 3, Elapsed: 5 * time.Second,
				AttemptTimeout: 4 * time.Second}, 0,
				[]time.Duration{4 * time.Second, 4 * time.Second}},
			{"the smaller", retry.Policy{Attempts: 2, AttemptTimeout: time.Second}, 8 * time.Second,
				[]time.Duration{time.Second, time.Second}},
			{"AttemptTimeout alone", retry.Policy{Attempts: 2, AttemptTimeout: time.Second},
				0, []time.Duration{time.Second, time.Second}},
			{"an hour is cut", retry.Policy{Attempts: 4, AttemptTimeout: time.Hour},
				8 * time.Second, []time.Duration{2 * time.Second, 2 * time.Second, 2 * time.Second,
					2 * time.Second}},
		} {
			row.policy.Backoff = retry.Backoff{Base: none, Cap: none}
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if row.within > 0 {
				ctx, cancel = context.WithTimeout(ctx, row.within)
			}
			var got []time.Duration
			_, err := retry.Do(ctx, row.policy, func(ctx context.Context, _ int) (int, error) {
				begin := time.Now()
				<-ctx.Done()
				got = append(got, time.Since(begin).Round(time.Millisecond))
				return 0, context.Cause(ctx)
			})
			assert.ErrorIs(t, err, context.DeadlineExceeded, "%s: attempts lasted", row.name)
			assert.Equal(t, fmt.Sprint(row.want), fmt.Sprint(got), "%s: attempts lasted", row.name)
			cancel()
		}
	})
}

func TestDoEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := errors.New("asked to stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		fn, calls := failing(1000, errNetwork)
		time.AfterFunc(time.Second, func() { cancel(asked) })
		start := time.Now()
		_, err := retry.Do(ctx, retry.Policy{Elapsed: 24 * time.Hour,
			Backoff: retry.Backoff{Base: time.Hour, Cap: time.Hour, Jitter: retry.Equal}}, fn)
		gaveUp(t, err, retry.ContextEnded)
		assert.ErrorIs(t, err, asked)
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, errNetwork)
		assert.Equal(t, time.Second, time.Since(start))
		_, err = retry.Do(ctx, retry.Policy{}, fn)
		assert.ErrorIs(t, err, asked, "a context that is over")
		assert.Len(t, *calls, 1)
		// An attempt that fails because its caller has gone is not tried again.
		ctx, cancel = context.WithCancelCause(t.Context())
		tries := 0
		_, err = retry.Do(ctx, retry.Policy{}, func(context.Context, int) (int, error) {
			tries++
			cancel(nil)
			return 0, errNetwork
		})
		assert.Equal(t, 1, tries)
		assert.Same(t, errNetwork, err)
	})
}

// Only the outermost Do retries: three layers make 3 calls and not 27.
func TestDoTellsInnerLayers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		var layer func(context.Context, int) (int, error)
		layer = func(ctx context.Context, depth int) (int, error) {
			if depth == 0 {
				calls++
				return 0, errNetwork
			}
			return retry.Do(ctx, retry.Policy{}, func(ctx context.Context, _ int) (int, error) {
				return layer(ctx, depth-1)
			})
		}
		_, err := layer(t.Context(), 3)
		assert.Error(t, err)
		assert.Equal(t, 3, calls)
		assert.True(t, !retry.Allowed(retry.NoRetry(t.Context())) && retry.Allowed(t.Context()),
			"Allowed does not see NoRetry")
		// A Do with one attempt leaves the retries to the layer below.
		_, _ = retry.Do(t.Context(), retry.Policy{Attempts: 1},
			func(ctx context.Context, _ int) (int, error) {
				assert.True(t, retry.Allowed(ctx), "a Do that does not retry forbids it to others")
				return 0, nil
			})
	})
}

func TestDoLetsPanicsPass(t *testing.T) {
	var inner context.Context
	defer func() {
		assert.Equal(t, "boom", recover(),
			"the panic was changed, or the attempt's context goes on")
		assert.Error(t, inner.Err())
	}()
	_, _ = retry.Do(t.Context(), retry.Policy{AttemptTimeout: time.Hour},
		func(ctx context.Context, _ int) (int, error) {
			inner = ctx
			panic("boom")
		})
}

func TestBadPolicies(t *testing.T) {
	for field, p := range map[string]retry.Policy{
		"Attempts":       {Attempts: -1},
		"Elapsed":        {Elapsed: -1},
		"AttemptTimeout": {AttemptTimeout: -1},
		"Base":           {Backoff: retry.Backoff{Base: 2, Cap: 1}},
		"Kind":           {Backoff: retry.Backoff{Jitter: 9}},
	} {
		fn, calls := failing(0, nil)
		_, err := retry.Do(t.Context(), p, fn)
		assert.ErrorContains(t, err, field, field)
		assert.Empty(t, *calls, field)
		_, err = retry.NewTransport(nil, retry.TransportConfig{Policy: p})
		assert.ErrorContains(t, err, field, field)
	}
	_, err := retry.Do[int](t.Context(), retry.Policy{}, nil)
	assert.Error(t, err, "a nil fn is called")
}

func TestMarksOfNil(t *testing.T) {
	require.NoError(t, retry.Permanent(nil))
	require.NoError(t, retry.After(nil, time.Second))
	assert.False(t, retry.Retryable(nil), "nil became an error")
	assert.True(t, retry.Retryable(context.DeadlineExceeded) && retry.Retryable(errNetwork),
		"a timeout or a network error is not tried again")
}

func TestReasonsHaveWords(t *testing.T) {
	for r := retry.AttemptsUsed; r <= retry.ContextEnded; r++ {
		s := r.String()
		assert.NotEmpty(t, s, "reason %d", r)
		assert.False(t, strings.HasPrefix(s, "Reason("), "reason %d", r)
	}
	assert.Equal(t, "Reason(99)", retry.Reason(99).String(),
		"an unknown reason or a jitter has no name")
	assert.Equal(t, "decorrelated", retry.Decorrelated.String())
}

// Decorrelated jitter grows from the previous wait, which Do has to pass on.
func TestDecorrelatedWaitsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var longest time.Duration
		fn, _ := failing(30, errNetwork)
		p := retry.Policy{Attempts: 31, Elapsed: 24 * time.Hour,
			Backoff: retry.Backoff{Base: time.Second, Cap: time.Hour, Jitter: retry.Decorrelated}}
		p.OnRetry = func(e retry.Event) { longest = max(longest, e.Delay) }
		_, err := retry.Do(t.Context(), p, fn)
		require.NoError(t, err)
		assert.Greater(t, longest, 3*time.Second, "the longest of 30 waits")
	})
}

// A call that wakes too late from a wait starts no attempt, because it would have no time.
func TestLateAwakening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fn, calls := failing(9, errNetwork)
		p := retry.Policy{Elapsed: time.Minute, OnRetry: func(retry.Event) {
			time.Sleep(time.Hour)
		}}
		_, err := retry.Do(t.Context(), p, fn)
		gaveUp(t, err, retry.ElapsedNear)
		assert.Len(t, *calls, 1)
	})
}
