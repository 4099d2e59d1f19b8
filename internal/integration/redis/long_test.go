//go:build long

package redis_test

// All slots of a master but one: an emptied master becomes a replica, and two masters
// cannot vote for a promotion.
const (
	others      = 1_000_000 // keys among which uncertain ones are looked for
	moves       = 5460
	enoughAsked = 5000
)
