package retry_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/onceward/onceward/retry"
)

func TestBudgetCountsExactly(t *testing.T) {
	b, err := retry.NewBudget(retry.BudgetConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if !b.Take() {
			t.Fatal("the floor is not three retries")
		}
	}
	for i := range 100 {
		if b.Take() != (i > 0 && i%10 == 0) { // a sum of floats would miss some
			t.Fatalf("after %d requests: a token too many or too few (%v)", i, b.Tokens())
		}
		b.Deposit()
	}
}

func TestBudgetKeepsNoMoreThanMost(t *testing.T) {
	b, err := retry.NewBudget(retry.BudgetConfig{Ratio: 0.5, Floor: 1, Most: 4})
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		b.Deposit()
	}
	if b.Tokens() != 4 {
		t.Errorf("%v tokens, want 4", b.Tokens())
	}
}

// Of n requests no more than Floor + Ratio*n are sent again, from however many goroutines.
func TestBudgetHoldsUnderConcurrency(t *testing.T) {
	b, err := retry.NewBudget(retry.BudgetConfig{Ratio: 0.1, Floor: 3, Most: 1e6})
	if err != nil {
		t.Fatal(err)
	}
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
	if taken.Load() != 803 || b.Tokens() >= 1 {
		t.Errorf("%d taken, %v left; want 803 and less than one", taken.Load(), b.Tokens())
	}
}

// A total outage costs the other side a tenth more calls, where attempts alone would cost three
// times as many.
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
				_, _ = retry.Do(t.Context(), p, func(context.Context, int) (int, error) { calls++; return 0, errNetwork })
			}
			if calls < row.min || calls > row.max {
				t.Errorf("%s: 1000 requests made %d calls, want %d to %d", row.name, calls, row.min, row.max)
			}
		}
	})
}

func TestNoBudget(t *testing.T) {
	for _, b := range []*retry.Budget{nil, retry.Unlimited()} {
		b.Deposit()
		if !b.Take() || !math.IsInf(b.Tokens(), 1) {
			t.Error("a budget that is none refuses")
		}
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
		if _, err := retry.NewBudget(row.cfg); err == nil || !strings.Contains(err.Error(), row.field) {
			t.Errorf("%+v: %v, want an error that names %s", row.cfg, err, row.field)
		}
	}
}

// A transport has a budget also if nobody gives it one, and a request pays in once, however often
// it is sent.
func TestTransportsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &script{steps: []step{broken}}
		tr, err := retry.NewTransport(base, retry.TransportConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			_ = refused(t, tr, request(t, "GET", ""))
		}
		// Three in hand, and one of ten: 1000/10, or one less for what is left in the bucket.
		if n := len(base.requests()); n < 1102 || n > 1103 {
			t.Errorf("1000 requests were sent %d times", n)
		}
	})
}
