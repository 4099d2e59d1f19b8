package retry_test

import (
	"context"
	"io"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

func TestBudgetCountsExactly(t *testing.T) {
	b, err := retry.NewBudget(retry.BudgetConfig{})
	require.NoError(t, err)
	for range 3 {
		require.True(t, b.Take(), "the floor is not three retries")
	}
	for i := range 100 {
		// a sum of floats would miss some
		require.Equal(t, i > 0 && i%10 == 0, b.Take(), "after %d requests", i)
		b.Deposit()
	}
}

func TestBudgetKeepsNoMoreThanMost(t *testing.T) {
	b, err := retry.NewBudget(retry.BudgetConfig{Ratio: 0.5, Floor: 1, Most: 4})
	require.NoError(t, err)
	for range 1000 {
		b.Deposit()
	}
	assert.EqualValues(t, 4, b.Tokens())
}

// Of n requests at most Floor + Ratio*n are repeated, however many goroutines send them.
func TestBudgetHoldsUnderConcurrency(t *testing.T) {
	b, err := retry.NewBudget(retry.BudgetConfig{Ratio: 0.1, Floor: 3, Most: 1e6})
	require.NoError(t, err)
	var taken atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				b.Deposit()
				for range 3 {
					if b.Take() {
						taken.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 803, taken.Load())
	assert.Less(t, b.Tokens(), 1.0)
}

// In a total outage the server gets a tenth more calls. Without a budget it would get three times
// as many.
func TestOutageAddsATenth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			name     string
			budget   bool
			min, max int
		}{
			{"budget", true, 1090, 1103},
			{"none", false, 3000, 3000},
		} {
			p := retry.Policy{}
			if row.budget {
				p.Budget, _ = retry.NewBudget(retry.BudgetConfig{})
			}
			calls := 0
			for range 1000 {
				_, _ = retry.Do(t.Context(), p, func(context.Context, int) (int, error) {
					calls++
					return 0, errNetwork
				})
			}
			assert.GreaterOrEqual(t, calls, row.min, "%s: 1000 requests made", row.name)
			assert.LessOrEqual(t, calls, row.max, "%s: 1000 requests made", row.name)
		}
	})
}

func TestNoBudget(t *testing.T) {
	for _, b := range []*retry.Budget{nil, retry.Unlimited()} {
		b.Deposit()
		assert.True(t, b.Take() && math.IsInf(b.Tokens(), 1), "a budget that is none refuses")
	}
}

func TestBadBudgets(t *testing.T) {
	for _, row := range []struct {
		field string
		cfg   retry.BudgetConfig
	}{
		{"Ratio", retry.BudgetConfig{Ratio: -0.1}},
		{"Ratio", retry.BudgetConfig{Ratio: math.NaN()}},
		{"Floor", retry.BudgetConfig{Floor: math.Inf(1)}},
		{"Most", retry.BudgetConfig{Most: -1}},
		{"Most", retry.BudgetConfig{Floor: 5, Most: 4}},
	} {
		_, err := retry.NewBudget(row.cfg)
		assert.ErrorContains(t, err, row.field, "%+v", row.cfg)
	}
}

// A transport without a configured budget has one, too. A request makes one deposit, however often
// it is sent.
func TestTransportsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{broken}}
		tr, err := retry.NewTransport(base, retry.TransportConfig{})
		require.NoError(t, err)
		for range 1000 {
			_ = refused(t, tr, request(t, "GET", ""))
		}
		// Three in hand, and one of ten: 1000/10, or one less for what is left in the bucket.
		n := len(base.requests())
		assert.GreaterOrEqual(t, n, 1102, "1000 requests were sent")
		assert.LessOrEqual(t, n, 1103)
	})
}

// The token for a repeat that is not sent after all is returned.
func TestTokensOfWhatIsNotSent(t *testing.T) {
	for _, name := range []string{"breaker before a retry", "breaker before a hedge",
		"caller goes, transport", "caller goes, Do", "body gone"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { notSent(t, name) })
		})
	}
}

func notSent(t *testing.T, name string) {
	budget, err := retry.NewBudget(retry.BudgetConfig{Ratio: 1e-6})
	require.NoError(t, err)
	b := &breaker{limit: 1, delay: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := retry.TransportConfig{Policy: retry.Policy{Budget: budget}}
	base := &script{steps: []step{broken}}
	req := request(t, "GET", "").WithContext(ctx)
	switch name {
	case "breaker before a retry":
		cfg.Breaker = b
	case "breaker before a hedge":
		cfg.Breaker, cfg.HedgeAfter, base.steps = b, time.Second,
			[]step{slow(time.Minute, answer(200, ""))}
		time.AfterFunc(time.Millisecond, b.RecordFailure)
	case "body gone":
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader("x")), 1
		req.GetBody = func() (io.ReadCloser, error) { return nil, errNetwork }
	default:
		time.AfterFunc(time.Millisecond, cancel)
	}
	if name == "caller goes, Do" {
		p := cfg.Policy
		p.Backoff = steady
		_, err = retry.Do(ctx, p, func(context.Context, int) (int, error) { return 0, errNetwork })
		gaveUp(t, err, retry.ContextEnded)
	} else if resp, err := transport(t, base, cfg).RoundTrip(req); err == nil {
		text(t, resp, nil)
	}
	got := budget.Tokens()
	assert.LessOrEqual(t, len(base.requests()), 1)
	assert.GreaterOrEqual(t, got, retry.DefaultFloor)
	assert.LessOrEqual(t, got, retry.DefaultFloor+1e-5)
}
