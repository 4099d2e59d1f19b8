package retry

import (
	"fmt"
	"net/http"
	"time"
)

// KeyHeader is the header that names one operation over all its attempts
// (draft-ietf-httpapi-idempotency-key-header).
const KeyHeader = "Idempotency-Key"

// Defaults of the zero [TransportConfig].
const (
	DefaultBodyLimit = 1 << 20
	DefaultMaxWait   = time.Minute
)

// TransportConfig says how a [Transport] repeats requests. The zero value repeats what is
// idempotent or has a key already, three attempts under a budget of its own.
type TransportConfig struct {
	// Policy bounds the attempts of each request. Its AttemptTimeout, and the share of the
	// deadline, hold until the header of a response has arrived; the body has the time of the
	// caller's context. A nil Budget is one of this Transport's own: make a Transport for each
	// service.
	Policy Policy
	// Key names the operation of a request that has no Idempotency-Key and whose method is not
	// idempotent; "" for none. It is not called for PUT and DELETE, which are repeated without a
	// key: who wants one there sets the header. It is sent in the double quotes of the draft (RFC
	// 8941, 3.3.3), so it is at most 255 visible ASCII characters, quotes included, without quotes
	// and backslashes of its own; anything else, and an error of Key, is returned by RoundTrip, and
	// nothing is sent. Who must send a bare value sets the header. It may be called concurrently.
	// Default: none.
	Key func(*http.Request) (string, error)
	// GenerateKeys says that the target of a request honours keys: it has each effect once for a
	// key. Such requests get a random key of 130 bits where there is none and the method is not
	// idempotent (PUT and DELETE are), and those with a key may be hedged. Every
	// attempt of one RoundTrip, and every hop of its redirects, has the same; a request that the
	// caller makes again has another. It may be called concurrently. Default: none does.
	GenerateKeys func(*http.Request) bool
	// Breaker guards the service, of which a Transport has one. Default: none.
	Breaker Breaker
	// HedgeAfter is the time after which a second copy of a request is sent beside the first, and
	// the first good answer taken; the other is cancelled. Only requests that are safe (RFC 9110,
	// 9.2.1), or have a key that GenerateKeys says is honoured, are hedged, and each hedge takes a
	// token of the budget. Choose about the 95th percentile of the latency ("The Tail at Scale",
	// Communications of the ACM 56(2), 2013). Default: no hedges.
	HedgeAfter time.Duration
	// BodyLimit is the size, in bytes, up to which a body without GetBody is read into memory
	// before the first attempt, so that it can be sent again; under [NoRetry] only where there is a
	// key, because of which it may have to wait. A longer one is sent once, as it comes. Negative:
	// never read. Default: [DefaultBodyLimit].
	BodyLimit int64
	// Statuses decides about statuses; it returns [Usual] for those it leaves to the rule:
	// [StatusClass], and [Wait] for a 409 to a request with a key that is a problem+json (RFC 9457)
	// of a type which ends in "in-flight", or in "uncertain" and says when to come back
	// (Retry-After). A response with Do-Not-Retry or Idempotent-Replayed is
	// [Final] whatever Statuses says: the second would be the same again. It may be called
	// concurrently. Default: the rule.
	Statuses func(status int) Class
	// MaxWait is the longest time for which one request asks for the answer of another in flight,
	// from the send on that first met it, another send as long as the last one included. Then the
	// 409 is returned: what is uncertain may stay so until an operator has looked. Default:
	// [DefaultMaxWait].
	MaxWait time.Duration
	// Foreign says that a request goes to somebody who is not to be told Do-Not-Retry. The context
	// of the request carries [NoRetry] all the same. It may be called concurrently. Default: nobody
	// is foreign.
	Foreign func(*http.Request) bool
}

// Breaker is a circuit breaker. Each permit is answered by exactly one Record: failures are network
// errors, timeouts and 5xx. A hedge that lost to an answer is a success, because its service has
// answered. A request that its caller has cancelled proves nothing, nor does a hedge that lost to
// an error or a 5xx: if the breaker has a method ReleasePermit() that is called, and otherwise
// RecordFailure: a breaker that is half open must get its permit back, and must not close without
// evidence. All methods may be called concurrently.
type Breaker interface {
	// TryAcquirePermit reports whether a request may be sent now, without waiting.
	TryAcquirePermit() bool
	// RecordSuccess answers a permit: the service answered, and not with 5xx.
	RecordSuccess()
	// RecordFailure answers a permit: it did not.
	RecordFailure()
}

// complete checks cfg and fills in defaults.
func (cfg TransportConfig) complete() (TransportConfig, error) {
	var err error
	if cfg.Policy, err = cfg.Policy.complete(); err != nil {
		return cfg, err
	}
	switch {
	case cfg.HedgeAfter < 0:
		return cfg, fmt.Errorf("retry: HedgeAfter is negative: %v", cfg.HedgeAfter)
	case cfg.MaxWait < 0:
		return cfg, fmt.Errorf("retry: MaxWait is negative: %v", cfg.MaxWait)
	}
	if cfg.Policy.Budget == nil {
		if cfg.Policy.Budget, err = NewBudget(BudgetConfig{}); err != nil {
			return cfg, err
		}
	}
	if cfg.BodyLimit == 0 {
		cfg.BodyLimit = DefaultBodyLimit
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = DefaultMaxWait
	}
	return cfg, nil
}
