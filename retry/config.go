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

// TransportConfig says how a [Transport] repeats requests. The zero value repeats requests that
// are idempotent or have a key already: three attempts under a budget of its own.
type TransportConfig struct {
	// Policy bounds the attempts of each request. Its AttemptTimeout, and the share of the
	// deadline, apply until the header of a response has arrived; the body has the time of the
	// caller's context. With a nil Budget the Transport makes its own: make a Transport for each
	// service.
	Policy Policy
	// Key returns the key for the operation of a request that has no Idempotency-Key and whose
	// method is not idempotent; "" means no key. It is not called for PUT and DELETE, which are
	// repeated without a key: to send one there, or a value without quotes, set the header. The key
	// is sent in the double quotes of the draft (RFC 8941, 3.3.3). So it has at most 255 visible
	// ASCII characters, quotes included, without quotes and backslashes of its own. For any other
	// key, and for an error of Key, RoundTrip returns an error and sends nothing. It may be called
	// concurrently. Default: none.
	Key func(*http.Request) (string, error)
	// GenerateKeys reports that the target of a request honors keys: it runs each effect once for a
	// key. A request to such a target gets a random key of 130 bits if it has no key and its method
	// is not idempotent (PUT and DELETE are idempotent). Requests with a key may then be hedged.
	// Every attempt of one RoundTrip, and every hop of its redirects, has the same key. A request
	// that the caller makes again has another key. It may be called concurrently. Default: no
	// target does.
	GenerateKeys func(*http.Request) bool
	// Breaker guards the one service that the Transport calls. Default: none.
	Breaker Breaker
	// HedgeAfter is the time after which a second copy of a request is sent. The first good answer
	// is taken, and the other copy is canceled. Only safe requests (RFC 9110, 9.2.1), and those
	// with a key that the target honors (GenerateKeys), are hedged. Each hedge takes a token of the
	// budget. Choose about the 95th percentile of the latency ("The Tail at Scale", Communications
	// of the ACM 56(2), 2013). Default: no hedges.
	HedgeAfter time.Duration
	// BodyLimit is the size, in bytes, up to which a body without GetBody is read into memory
	// before the first attempt, so that it can be sent again. Under [NoRetry] this happens only for
	// a request with a key, which may have to wait. A longer body is streamed and sent once.
	// Negative: never read. Default: [DefaultBodyLimit].
	BodyLimit int64
	// Statuses returns the class of a status, or [DefaultClass] to leave it to the rule. The rule
	// is [StatusClass], and [Wait] for a 409 to a request with a key, if it is a problem+json (RFC
	// 9457) whose type ends in "in-flight", or in "uncertain" with Retry-After. A response with
	// Do-Not-Retry or Idempotent-Replayed is [Final] whatever Statuses says, because another
	// response would be the same. It may be called concurrently. Default: the rule.
	Statuses func(status int) Class
	// MaxWait is the longest time for which one request waits for the answer of another request in
	// flight. It counts from the send that first got the 409, and includes one more send, which is
	// assumed to take as long as the last one. After MaxWait the 409 is returned, because an
	// uncertain key may stay uncertain until an operator settles it. Default: [DefaultMaxWait].
	MaxWait time.Duration
	// Foreign reports that the target of a request must not get the header Do-Not-Retry. The
	// context of the request still carries [NoRetry]. It may be called concurrently. Default: no
	// target is foreign.
	Foreign func(*http.Request) bool
}

// Breaker is a circuit breaker. Each permit is answered by exactly one Record: failures are network
// errors, timeouts and 5xx. A hedge that lost to an answer is a success, because its service has
// answered. A request that its caller has canceled proves nothing, and neither does a hedge that
// lost to an error or a 5xx. For these, ReleasePermit() is called if the breaker has that method,
// and otherwise RecordFailure, because a half-open breaker must get its permit back, and must not
// close without evidence. All methods may be called concurrently.
type Breaker interface {
	// TryAcquirePermit reports whether a request may be sent now, without waiting.
	TryAcquirePermit() bool
	// RecordSuccess answers a permit after the service has answered with something other than 5xx.
	RecordSuccess()
	// RecordFailure answers a permit after the service has not answered, or has answered with 5xx.
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
