// Package retry is the client's half of doing an effect once: it sends again what may be sent
// again, under one Idempotency-Key, and stops before its retries become the outage.
//
//	honours := func(r *http.Request) bool { return r.URL.Host == "api.example.com" }
//	transport, err := retry.NewTransport(nil, retry.TransportConfig{GenerateKeys: honours})
//	client := &http.Client{Transport: transport}
//	resp, err := client.Post(url, "application/json", body)
//
// [Transport] is an [http.RoundTripper] that repeats requests; [Do] repeats any function. Both keep
// to one [Policy].
//
// # What is tried again
//
// Answers 408, 425, 429 and 5xx but 501 and 505, and errors of the network; not other answers, not
// a stored answer that was replayed, not an error of a certificate, not what the caller has
// cancelled. A request whose method is not idempotent (RFC 9110, 9.2.2) is sent once, unless it has
// an Idempotency-Key: nobody knows whether the attempt that failed has had its effect. With a key
// the server knows. A 409 that says "in flight", or "uncertain" and when to come back, is such a
// server at work: it is waited for, up to a minute ([TransportConfig].MaxWait), and costs neither
// an attempt nor a token.
//
// # When
//
// After exponential backoff with jitter ([Backoff]), never before the time that Retry-After
// names (RFC 9110, 10.2.3), and never so late that the deadline has passed: then the failure is
// returned at once.
//
// # How much
//
// Three bounds hold together. [Policy].Attempts bounds one call. A [Budget] bounds all calls of a
// process: one retry for ten requests, so that a total outage costs the other side a tenth more
// load and not three times as much; a Transport has one by default, [Do] only the one it is given.
// And only the outermost layer retries: it marks its context with [NoRetry] and its requests with
// the header Do-Not-Retry, and [Handler] turns the header into the context again. Without this,
// four layers of three attempts call the last one 81 times. The rules are those of Google's "Site
// Reliability Engineering", chapters "Handling Overload" (per-client retry budget, retries at one
// layer) and "Addressing Cascading Failures".
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
