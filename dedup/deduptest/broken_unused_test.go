package deduptest

import (
	"context"
	"sync"

	"github.com/onceward/onceward/dedup/driver"
)

// subtractsAgain makes a store subtract an attempt once more each time that a NotAttempted end is
// sent again.
func subtractsAgain(b *broken) {
	var mu sync.Mutex
	less := map[driver.ID]int{}
	show := func(id driver.ID, a *driver.Answer) {
		mu.Lock()
		defer mu.Unlock()
		a.Record.Attempt = max(a.Record.Attempt-less[id], 0)
	}
	b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
		answers := make([]driver.Answer, len(changes))
		for i, c := range changes {
			before := b.state(ctx, c.ID)
			answers[i] = b.Store.Finish(ctx, changes[i:i+1])[0]
			if c.NotAttempted && answers[i].Written && before.State == driver.StateReleased {
				mu.Lock()
				less[c.ID]++
				mu.Unlock()
			}
			show(c.ID, &answers[i])
		}
		return answers
	}
	b.lookup = func(ctx context.Context, ids []driver.ID) []driver.Answer {
		answers := b.Store.Lookup(ctx, ids)
		for i := range answers {
			show(ids[i], &answers[i])
		}
		return answers
	}
	eachClaim(b, func(req driver.ClaimRequest, a *driver.Answer) { show(req.ID, a) })
}

var unusedMutants = []mutant{
	{"an unused attempt counts", eachChange(func(c *driver.Finish) {
		c.NotAttempted = c.NotAttempted && (c.NotStarted || c.State != driver.StateReleased)
	}),
		[]string{"unused/not_counted", "unused/sent_again", "unused/danger",
			"concurrent/random_walk"}},

	{"an unused attempt is taken away twice", subtractsAgain,
		[]string{"unused/sent_again", "concurrent/random_walk"}},

	{"an unused attempt withdraws danger", eachChange(func(c *driver.Finish) {
		if c.NotAttempted && c.State == driver.StateReleased && !c.NotStarted {
			c.NotAttempted, c.NotStarted = false, true
		}
	}), []string{"unused/danger"}},

	{"an attempt that has ended is unused", eachChange(func(c *driver.Finish) {
		c.NotAttempted = c.NotAttempted && c.State == driver.StateReleased && !c.NotStarted
	}), []string{"unused/contradiction"}},
}
