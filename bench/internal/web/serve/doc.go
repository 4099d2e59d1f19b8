// Package serve times requests with an Idempotency-Key over real connections of loopback: a handler
// behind the middleware of httpadapter, the same handler bare, bare with the round trips that no
// middleware can do without, and behind what else people use.
package serve
