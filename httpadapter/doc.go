// Package httpadapter makes an HTTP request that arrives twice have its effect once: a
// middleware for the Idempotency-Key header, as the IETF's draft describes it
// (draft-ietf-httpapi-idempotency-key-header-07) and Stripe's interface uses it.
//
// The first request with a key runs its handler, and its answer is kept back until it is
// recorded. Who comes again with the key gets that answer; while the first still runs, 409;
// with another content, 422. When it cannot be found out or recorded, 503: nobody is told
// of a success that is not on record. Keys belong to a principal, a method and a route.
//
// A [Runner] has the effect once: [Claimed] for effects elsewhere, or one of package
// sqladapter that keeps effect, record and answer in one transaction. The page docs/http.md
// of the repository tells what is answered when, what to choose, and what breaks the promise.
package httpadapter
