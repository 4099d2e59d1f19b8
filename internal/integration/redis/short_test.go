//go:build !long

package redis_test

// moves is how many slots move, enoughAsked how many calls must have met one of them on the move.
// With the build tag long there are more.
const (
	others      = 20_000 // keys among which uncertain ones are looked for
	moves       = 200
	enoughAsked = 30
)
