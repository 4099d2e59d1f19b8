package deduptest

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"testing"
)

// StormConfig says how much [Storm] does. The zero value is usable.
type StormConfig struct {
	// Messages that are delivered. Default 100.
	Messages int
	// Deliveries is the number of copies of each message. Each is delivered until it is
	// acknowledged. Default 3.
	Deliveries int
	// Processes is how many processes run at a time, each with one delivery. Default 8.
	Processes int
	// Rate is how likely a call of the store is to be hit, from 0 to 1. Default 0.05. The ninth
	// and later deliveries of a message are not hit, so that each comes to an end.
	Rate float64
	// Seed decides which call of which delivery is hit, and in which order messages come. It does
	// not decide what processes do in between. Default: a random one, which is logged.
	Seed uint64
}

// Storm delivers many messages several times, by several processes at once. Calls of the store
// crash, pause for two leases, or lose their request or reply. It judges as [Twice] does.
func Storm(t testing.TB, s Subject, c StormConfig) Report {
	t.Helper()
	if c.Messages < 0 || c.Deliveries < 0 || c.Processes < 0 || c.Rate < 0 || c.Rate > 1 {
		t.Fatal("deduptest: StormConfig has a negative number, or a Rate above 1")
	}
	c.Messages, c.Deliveries, c.Processes = cmp.Or(c.Messages, 100), cmp.Or(c.Deliveries, 3),
		cmp.Or(c.Processes, 8)
	c.Rate, c.Seed = cmp.Or(c.Rate, 0.05), cmp.Or(c.Seed, rand.Uint64())
	t.Logf("deduptest: StormConfig.Seed %d", c.Seed)
	tr := newTrial(t, s)
	var queue []task
	for range c.Messages {
		m := tr.newMessage("storm")
		for copied := range c.Deliveries {
			queue = append(queue, task{m: m, copied: copied})
		}
	}
	rng := rand.New(rand.NewPCG(c.Seed, 0))
	rng.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
	tasks := make(chan task, len(queue))
	for _, next := range queue {
		tasks <- next
	}
	close(tasks)
	var all sync.WaitGroup
	for range c.Processes {
		all.Go(func() {
			for next := range tasks {
				tr.until(next.m, func(delivery int) fate { return c.fate(next, delivery) })
			}
		})
	}
	all.Wait()
	return tr.judge()
}

// task is one copy of a message, which is delivered until it is acknowledged.
type task struct {
	m      *message
	copied int
}

// fate is the same for the same seed, message, copy, delivery and call.
func (c *StormConfig) fate(next task, delivery int) fate {
	if delivery >= 8 {
		return unharmed
	}
	blows := [...]blow{crashBefore, crashAfter, loseRequest, loseReply, pauseBefore, pauseAfter}
	rng := rand.New(rand.NewPCG(c.Seed,
		uint64(next.m.number)<<32|uint64(next.copied)<<16|uint64(delivery)))
	return func(Op, int) blow {
		if hit, b := rng.Float64() < c.Rate, blows[rng.IntN(len(blows))]; hit {
			return b
		}
		return nothing
	}
}
