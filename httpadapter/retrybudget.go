package httpadapter

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
)

const (
	defaultRetryRatio      = 0.1
	defaultRetryPerSecond  = 1.0
	defaultRetryMost       = 10.0
	defaultRetryPrincipals = 10_000
	defaultRetryKeys       = 100_000
)

// RetryBudgetConfig says how many retries a [RetryBudget] accepts of each principal.
type RetryBudgetConfig struct {
	// Ratio is how many retries each new request adds to the budget. Default 0.1, one retry for ten
	// requests.
	Ratio float64
	// PerSecond is the number of retries that each second adds, so that a client without new
	// requests may retry, too. Default 1.
	PerSecond float64
	// Most is the largest number of retries that a budget can hold, and the number that it holds at
	// the beginning. At least 1. Default 10.
	Most float64
	// Principals bounds how many principals are remembered, with a little more than 16 bytes each.
	// If there are more, those that have sent nothing for longest are forgotten and begin again
	// with Most. Default 10,000.
	Principals int
	// Keys bounds how many keys of all principals are remembered, with a little more than 8 bytes
	// each. The first retry of a forgotten key costs a claim before it counts as a retry. Default
	// 100,000.
	Keys int
}

// RetryBudget bounds the retries of each principal to a part of its requests, at the server. Each
// principal has a bucket of tokens, as a client has in retry.Budget. Each new request adds Ratio
// tokens, and each second adds PerSecond. Each retry takes one token, and is refused if there is no
// token. New requests are never refused. Without a RetryBudget, the retries of one client that has
// no budget of its own can use up all that a service in trouble can still do.
//
// A request is a retry if it says so (Config.IsRetry), if this process has seen its key before, or
// if the Runner finds its key. A retry that only the Runner recognizes has already cost a claim, so
// it is not refused, but it is counted. Each process counts by itself, so n processes accept n
// times as much.
//
// One RetryBudget may serve several middlewares, and the interceptor of package grpcadapter: a
// principal is then counted in all of them together. It is safe for concurrent use, starts no
// goroutine, and its memory is bounded. A nil RetryBudget refuses nothing, and its methods do
// nothing.
type RetryBudget struct {
	cfg   RetryBudgetConfig
	seed  maphash.Seed
	start time.Time

	mu      sync.Mutex
	buckets recent[uint64, bucket]
	keys    recent[uint64, struct{}]
	stats   RetryStats
}

// RetryStats counts requests with a key since a [RetryBudget] was made.
type RetryStats struct {
	Admitted int64 // Requests that continued.
	Retries  int64 // Retries among them.
	Refused  int64 // Retries that were refused.
}

// NewRetryBudget returns a budget. It refuses with an [*dedup.InputError]: a Ratio, PerSecond or
// Most that is negative, not a number or above 1e9; a Most below 1; and Principals or Keys that are
// negative or 1.
func NewRetryBudget(cfg RetryBudgetConfig) (*RetryBudget, error) {
	for _, f := range []struct {
		name    string
		value   *float64
		usually float64
	}{
		{"Ratio", &cfg.Ratio, defaultRetryRatio},
		{"PerSecond", &cfg.PerSecond, defaultRetryPerSecond},
		{"Most", &cfg.Most, defaultRetryMost},
	} {
		if !(*f.value >= 0 && *f.value <= 1e9) { // not a number is neither
			return nil, badBudget(f.name, "is %v; it must be from 0 to a thousand million", *f.value)
		}
		*f.value = cmp.Or(*f.value, f.usually)
	}
	switch {
	case cfg.Most < 1:
		return nil, badBudget("Most", "is %v; below 1 no retry would ever be accepted", cfg.Most)
	case cfg.Principals < 0 || cfg.Principals == 1:
		return nil, badBudget("Principals", "is %d; it must be 2 or more", cfg.Principals)
	case cfg.Keys < 0 || cfg.Keys == 1:
		return nil, badBudget("Keys", "is %d; it must be 2 or more", cfg.Keys)
	}
	cfg.Principals = cmp.Or(cfg.Principals, defaultRetryPrincipals)
	cfg.Keys = cmp.Or(cfg.Keys, defaultRetryKeys)
	return &RetryBudget{cfg: cfg, seed: maphash.MakeSeed(), start: time.Now(),
		buckets: newRecent[uint64, bucket](cfg.Principals),
		keys:    newRecent[uint64, struct{}](cfg.Keys)}, nil
}

func badBudget(field, format string, args ...any) error {
	return &dedup.InputError{Field: "httpadapter.RetryBudgetConfig." + field,
		Reason: fmt.Sprintf(format, args...)}
}

// Admit counts a request of principal with a key before the key is claimed; scope is the scope of
// the key. marked reports that the request calls itself a retry. If wait is above zero, the request
// is refused, and wait is the time until the principal has a token again. Otherwise the request
// continues, and the caller must call [Admission.Found] with its result.
func (b *RetryBudget) Admit(principal, scope, key string, marked bool) (a Admission,
	wait time.Duration) {
	if b == nil {
		return Admission{}, 0
	}
	// If two keys had the same hash (one in 2^64), a new request would count as a retry.
	id := maphash.Comparable(b.seed, [2]string{scope, key})
	a = Admission{budget: b, principal: maphash.String(b.seed, principal)}
	b.mu.Lock()
	defer b.mu.Unlock()
	tokens := b.tokens(a.principal)
	_, seen := b.keys.get(id)
	a.retry = seen || marked
	if a.retry && tokens < oneRetry {
		b.stats.Refused++
		b.put(a.principal, tokens)
		if seen { // put in again, or it would be forgotten during a storm of retries
			b.keys.put(id, struct{}{})
		}
		return Admission{}, b.until(tokens)
	}
	b.stats.Admitted++
	b.keys.put(id, struct{}{})
	if a.retry {
		b.stats.Retries++
		b.put(a.principal, tokens-1)
	} else {
		b.put(a.principal, tokens+b.cfg.Ratio)
	}
	return a, 0
}

// oneRetry is how many tokens a retry needs: one token, less the rounding error of adding up parts
// of a token.
const oneRetry = 1 - 1e-6

// until returns how long it takes, without new requests, until the tokens have grown to one.
func (b *RetryBudget) until(tokens float64) time.Duration {
	seconds := min((1-tokens)/b.cfg.PerSecond, maxRetryWait.Seconds())
	return time.Duration(seconds * float64(time.Second))
}

// maxRetryWait bounds the wait that the answer to a refused retry names, however small PerSecond
// is.
const maxRetryWait = time.Hour

// Admission is a request that a [RetryBudget] has let continue. The zero Admission belongs to no
// budget.
type Admission struct {
	budget    *RetryBudget
	principal uint64
	retry     bool
}

// Found counts the request as a retry after all, if Admit took it for new and the result of
// [Runner.Run] shows that its key existed before.
func (a Admission) Found(res *dedup.Result[[]byte]) {
	if a.budget == nil || a.retry || !repeated(res) {
		return
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.Retries++
	b.put(a.principal, max(0, b.tokens(a.principal)-b.cfg.Ratio-1))
}

// repeated reports whether the key existed before this claim.
func repeated(res *dedup.Result[[]byte]) bool {
	switch res.Outcome {
	case dedup.Duplicate, dedup.InFlight, dedup.Mismatch, dedup.Uncertain:
		return true
	case dedup.Acquired:
		return res.Attempt > 1
	default: // nothing is known of it
		return false
	}
}

// Stats returns what was counted so far.
func (b *RetryBudget) Stats() RetryStats {
	if b == nil {
		return RetryStats{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stats
}

// bucket holds the tokens of a principal.
type bucket struct {
	tokens float64
	at     time.Duration // since the budget's start
}

// tokens returns how many tokens a principal has now.
func (b *RetryBudget) tokens(principal uint64) float64 {
	had, ok := b.buckets.get(principal)
	if !ok {
		return b.cfg.Most
	}
	earned := (time.Since(b.start) - had.at).Seconds() * b.cfg.PerSecond
	return min(had.tokens+earned, b.cfg.Most)
}

func (b *RetryBudget) put(principal uint64, tokens float64) {
	b.buckets.put(principal, bucket{min(tokens, b.cfg.Most), time.Since(b.start)})
}
