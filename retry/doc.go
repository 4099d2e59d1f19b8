// Package retry is the client's half of running an effect once. It repeats requests that may be
// repeated, under one Idempotency-Key, and stops before its retries become the outage.
//
//	honors := func(r *http.Request) bool { return r.URL.Host == "api.example.com" }
//	transport, err := retry.NewTransport(nil, retry.TransportConfig{GenerateKeys: honors})
//	client := &http.Client{Transport: transport}
//	resp, err := client.Post(url, "application/json", body)
//
// [Transport] is an [http.RoundTripper] that repeats requests; [Do] repeats any function. Both keep
// to one [Policy].
//
// # Retried answers and errors
//
// The answers 408, 425, 429 and 5xx except 501 and 505, and errors of the network, are retried.
// Other answers, replayed answers, errors of a certificate, and calls that the caller has canceled
// are not. A request whose method is not idempotent (RFC 9110, 9.2.2) is sent once, unless it has
// an Idempotency-Key: nobody knows whether the attempt that failed has had its effect. With a key
// the server knows. Such a server answers 409 "in flight", or "uncertain" with Retry-After, while
// it works. The client then waits for the answer, up to a minute ([TransportConfig].MaxWait). The
// wait costs neither an attempt nor a token.
//
// # Backoff
//
// A retry comes after exponential backoff with jitter ([Backoff]), and never before the time that
// Retry-After names (RFC 9110, 10.2.3). If that is after the deadline, the failure is returned at
// once.
//
// # Bounds
//
// Three bounds hold together. [Policy].Attempts bounds one call. A [Budget] bounds all calls of a
// process: one retry for ten requests. So a total outage costs the server a tenth more load, not
// three times as much. A Transport has a Budget by default; [Do] has only the Budget that its
// Policy names. And only the outermost layer retries: it marks its context with [NoRetry] and its
// requests with the header Do-Not-Retry, and in the next service [Handler] turns the header into
// such a context again. Without this, four layers of three attempts call the last one 81 times. The
// rules are those of Google's "Site Reliability Engineering", chapters "Handling Overload"
// (per-client retry budget, retries at one layer) and "Addressing Cascading Failures".
//
// # Breakers
//
// [Breaker] is the three methods that a circuit breaker needs here. That of
// github.com/failsafe-go/failsafe-go/circuitbreaker has them:
//
//	breaker := circuitbreaker.NewBuilder[any]().WithFailureThreshold(5).WithDelay(10 * time.Second).Build()
//	cfg.Breaker = breaker
//
// # Time
//
// All delays are timers of package time: in a bubble of testing/synctest they take no time.
package retry
