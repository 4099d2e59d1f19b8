// Package httpadapter makes an HTTP request that arrives twice have its effect once: a
// middleware for the Idempotency-Key header, as the IETF's draft describes it
// (draft-ietf-httpapi-idempotency-key-header-07) and Stripe's interface uses it.
//
//	run, err := httpadapter.Claimed(d) // or the Runner of a sqladapter.Ledger
//	...
//	once, err := httpadapter.New(run, account, httpadapter.Config{}) // account is a Scope
//	...
//	http.ListenAndServe(addr, authenticate(once.Handler(mux)))
//
// The first request with a key runs its handler, and its answer is kept back until it is
// recorded. A retry with the key gets that answer, or 409 while the first request still runs. A
// request with the key and different content gets 422. When the store cannot say whether a request
// is new, or cannot record its answer, the client gets 503: a success that is not on record is
// never reported. Keys belong to a principal, a method and a route.
//
// A [Runner] makes the effect happen once: [Claimed] for effects elsewhere, or the Runner of
// package [sqladapter], which keeps effect, record and answer in one transaction. The page
// docs/reference/http.md of the repository says what is answered when, what to choose, and what
// breaks the promise. Package [retry] is for clients, and package [webhook] receives webhooks.
//
// [sqladapter]: https://pkg.go.dev/github.com/onceward/onceward/sqladapter
// [retry]: https://pkg.go.dev/github.com/onceward/onceward/retry
// [webhook]: https://pkg.go.dev/github.com/onceward/onceward/httpadapter/webhook
package httpadapter
