//go:build long

package redis_test

// moves is all slots of a master except one. A master without slots would become a replica, and the
// two others could not vote for a promotion.
const (
	others      = 1_000_000 // keys among which uncertain ones are looked for
	moves       = 5460
	enoughAsked = 5000
)
