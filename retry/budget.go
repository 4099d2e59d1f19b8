package retry

import (
	"fmt"
	"math"
	"sync/atomic"
)

// Defaults of the zero [BudgetConfig].
const (
	DefaultRatio = 0.1
	DefaultFloor = 3.0
	DefaultMost  = 10.0
)

// BudgetConfig says how many retries a [Budget] pays for.
type BudgetConfig struct {
	// Ratio is how many tokens each request pays in; a retry costs one. Default: [DefaultRatio],
	// one retry for ten requests.
	Ratio float64
	// Floor is the number of tokens before the first request, for clients that send few requests.
	// Default: [DefaultFloor]; set a very small number for no tokens.
	Floor float64
	// Most is the largest number of tokens that requests can save up. When an outage begins, so
	// many retries are possible in addition to Ratio. For thousands of requests a second, set Most
	// to some seconds of Ratio times that rate. Default: [DefaultMost], or Floor where that is
	// larger.
	Most float64
}

// Budget is a bucket of tokens that bounds retries to a part of the requests. Each request puts
// Ratio tokens in, and each retry and each hedge takes one token out. If a retry is not sent,
// because a breaker is open or the caller has gone, it gives its token back. So of n requests at
// most Floor + Ratio*n are sent again, whatever fails. It is the per-client retry budget of
// "Handling Overload" in Google's "Site Reliability Engineering", whose share is 10 % as well.
//
// A Budget is safe for concurrent use, keeps no goroutine and counts in millionths. Use one Budget
// for each service, because two services that share a Budget pay for each other's outage.
type Budget struct {
	tokens       atomic.Int64 // millionths
	ratio, limit int64
	unlimited    bool
}

const token = 1_000_000

// NewBudget returns a budget with Floor tokens. A negative or infinite field, one that is not a
// number, and a Most below Floor is an error that names it.
func NewBudget(cfg BudgetConfig) (*Budget, error) {
	for name, v := range map[string]float64{"Ratio": cfg.Ratio, "Floor": cfg.Floor,
		"Most": cfg.Most} {
		if !(v >= 0 && v <= 1e9) { // not a number is neither
			return nil, fmt.Errorf("retry: %s is not from 0 to a thousand million: %v", name, v)
		}
	}
	if cfg.Ratio == 0 {
		cfg.Ratio = DefaultRatio
	}
	if cfg.Floor == 0 {
		cfg.Floor = DefaultFloor
	}
	if cfg.Most == 0 {
		cfg.Most = max(DefaultMost, cfg.Floor)
	}
	if cfg.Most < cfg.Floor {
		return nil, fmt.Errorf("retry: Most %v is below Floor %v", cfg.Most, cfg.Floor)
	}
	b := &Budget{ratio: millionths(cfg.Ratio), limit: millionths(cfg.Most)}
	b.tokens.Store(millionths(cfg.Floor))
	return b, nil
}

func millionths(v float64) int64 { return int64(math.Round(v * token)) }

// Unlimited returns a budget that pays for every retry: for tests, and for programs that bound
// retries in another way.
func Unlimited() *Budget { return &Budget{unlimited: true} }

// Deposit puts in Ratio of a token for one request. [Do] and [Transport] call it once for each
// call; call it in loops of your own that share the budget. On nil it does nothing.
func (b *Budget) Deposit() {
	if b == nil || b.unlimited {
		return
	}
	b.add(b.ratio)
}

func (b *Budget) add(n int64) {
	for {
		old := b.tokens.Load()
		if b.tokens.CompareAndSwap(old, min(old+n, b.limit)) {
			return
		}
	}
}

// Take takes one token and reports whether there was one. Nil and [Unlimited] always have one.
func (b *Budget) Take() bool {
	if b == nil || b.unlimited {
		return true
	}
	for {
		old := b.tokens.Load()
		if old < token {
			return false
		}
		if b.tokens.CompareAndSwap(old, old-token) {
			return true
		}
	}
}

// giveBack returns the token of a retry that was not sent.
func (b *Budget) giveBack() {
	if b != nil && !b.unlimited {
		b.add(token)
	}
}

// Tokens returns the number of tokens, for a gauge. It is infinite for nil and
// [Unlimited].
func (b *Budget) Tokens() float64 {
	if b == nil || b.unlimited {
		return math.Inf(1)
	}
	return float64(b.tokens.Load()) / token
}
