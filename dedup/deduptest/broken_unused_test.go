package deduptest

import (
	"context"
	"sync"

	"github.com/onceward/onceward/dedup"
)

// subtractsAgain shows one attempt less for each time that an attempt was said to be
// unused after the first.
func subtractsAgain(b *broken) {
	var mu sync.Mutex
	less := map[dedup.ID]int{}
	show := func(id dedup.ID, a *dedup.Answer) {
		mu.Lock()
		defer mu.Unlock()
		a.Record.Attempt = max(a.Record.Attempt-less[id], 0)
	}
	b.finish = func(ctx context.Context, changes []dedup.Finish) []dedup.Answer {
		answers := make([]dedup.Answer, len(changes))
		for i, c := range changes {
			before := b.state(ctx, c.ID)
			answers[i] = b.Store.Finish(ctx, changes[i:i+1])[0]
			if c.NotAttempted && answers[i].Written && before.State == dedup.StateReleased {
				mu.Lock()
				less[c.ID]++
				mu.Unlock()
			}
			show(c.ID, &answers[i])
		}
		return answers
	}
	b.lookup = func(ctx context.Context, ids []dedup.ID) []dedup.Answer {
		answers := b.Store.Lookup(ctx, ids)
		for i := range answers {
			show(ids[i], &answers[i])
		}
		return answers
	}
	eachClaim(b, func(req dedup.ClaimRequest, a *dedup.Answer) { show(req.ID, a) })
}

var unusedMutants = []mutant{
	{"an unused attempt counts", eachChange(func(c *dedup.Finish) {
		c.NotAttempted = c.NotAttempted && (c.NotStarted || c.State != dedup.StateReleased)
	}),
		[]string{"unused/not_counted", "unused/sent_again", "unused/danger",
			"concurrent/random_walk"}},

	{"an unused attempt is taken away twice", subtractsAgain,
		[]string{"unused/sent_again", "concurrent/random_walk"}},

	{"an unused attempt withdraws danger", eachChange(func(c *dedup.Finish) {
		if c.NotAttempted && c.State == dedup.StateReleased && !c.NotStarted {
			c.NotAttempted, c.NotStarted = false, true
		}
	}), []string{"unused/danger"}},

	{"an attempt that has ended is unused", eachChange(func(c *dedup.Finish) {
		c.NotAttempted = c.NotAttempted && c.State == dedup.StateReleased && !c.NotStarted
	}), []string{"unused/contradiction"}},
}
