// Package httpadapter makes an HTTP request that arrives twice have its effect once: a
// middleware for the Idempotency-Key header, as the IETF's draft describes it
// (draft-ietf-httpapi-idempotency-key-header-07) and Stripe's interface uses it.
package httpadapter
