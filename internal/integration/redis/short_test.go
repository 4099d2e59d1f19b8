//go:build !long

package redis_test

// How many slots move, and how many calls must have met one on the move; the build tag
// long has more.
const (
	others      = 20_000 // keys among which uncertain ones are looked for
	moves       = 200
	enoughAsked = 30
)
