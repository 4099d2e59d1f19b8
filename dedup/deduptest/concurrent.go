package deduptest

import (
	"sync"
	"sync/atomic"

	"github.com/onceward/onceward/dedup/driver"
)

const (
	workers = 16
	rounds  = 20 // times each worker asks for each key
)

// checkOneWinner lets all workers claim the same batch at once: one of them gets each
// key, and the others hear that it is in flight.
func checkOneWinner(c *check) {
	ids := make([]driver.ID, 32)
	for i := range ids {
		ids[i] = newID()
	}
	c.wantOneWinner(ids, 1, func(*driver.ClaimRequest) {})
}

// checkOneTaker does the same with keys that are uncertain.
func checkOneTaker(c *check) {
	ids := make([]driver.ID, 32)
	for i := range ids {
		ids[i] = c.uncertain(newID(), false).id
	}
	c.wantOneWinner(ids, 2, func(req *driver.ClaimRequest) { req.TakeUncertain = true })
}

func (c *check) wantOneWinner(ids []driver.ID, attempt int, bend func(*driver.ClaimRequest)) {
	wins := make([]atomic.Int32, len(ids))
	c.atOnce(func(worker int) {
		reqs := make([]driver.ClaimRequest, len(ids))
		for i := range ids {
			at := (i + worker) % len(ids) // each in an order of its own
			reqs[i] = c.stranger(ids[at]).request()
			bend(&reqs[i])
		}
		for i, a := range c.claims(reqs...) {
			switch {
			case a.Err != nil:
				c.Errorf("Claim: %v", a.Err)
			case a.Outcome == driver.Acquired && !a.Mine && a.Record.Attempt == attempt:
				wins[(i+worker)%len(ids)].Add(1)
			case a.Outcome != driver.InFlight:
				c.Errorf("a claim among %d at once: want acquired or in_flight, got %s", workers,
					describe(a))
			}
		}
	})
	for i := range wins {
		if n := wins[i].Load(); n != 1 {
			c.Errorf("key %d of %d was acquired by %d of %d workers", i, len(ids), n, workers)
		}
	}
}

// contended is a key that workers pass from hand to hand. The atomics count what must
// be exclusive; a store does not order its callers for the race detector.
type contended struct {
	id      driver.ID
	holders atomic.Int32
	fence   atomic.Uint64
	attempt atomic.Int64
}

// checkOneOwner lets all workers claim and release the same few keys over and over.
func checkOneOwner(c *check) {
	keys := make([]*contended, 4)
	for i := range keys {
		keys[i] = &contended{id: newID()}
	}
	var acquired atomic.Int64
	c.atOnce(func(worker int) {
		for turn := range rounds {
			if c.take(keys[(worker+turn)%len(keys)]) {
				acquired.Add(1)
			}
		}
	})
	total := int64(0)
	for _, k := range keys {
		total += k.attempt.Load()
	}
	if total != acquired.Load() {
		c.Errorf("%d claims were acquired, and the last attempts add up to %d",
			acquired.Load(), total)
	}
}

// take claims k and gives it back, and reports whether it got it. The counters are read and set
// while the claim is held, so they must not show another owner.
func (c *check) take(k *contended) bool {
	o := c.stranger(k.id)
	a := c.claims(o.request())[0]
	if a.Err != nil {
		c.Errorf("Claim: %v", a.Err)
		return false
	}
	if a.Outcome != driver.Acquired {
		if a.Outcome != driver.InFlight {
			c.Errorf("a contended claim: %s", describe(a))
		}
		return false
	}
	if n := k.holders.Add(1); n != 1 {
		c.Errorf("%d owners at a time", n)
	}
	if last := k.fence.Swap(a.Record.Fence); a.Record.Fence <= last {
		c.Errorf("the owner after fence %d has fence %d", last, a.Record.Fence)
	}
	if last := k.attempt.Swap(int64(a.Record.Attempt)); int64(a.Record.Attempt) != last+1 {
		c.Errorf("the owner after attempt %d has attempt %d", last, a.Record.Attempt)
	}
	// Make a round trip while the claim is held, so that a second owner has the time to show up.
	if rec := c.lookups(k.id)[0].Record; rec.State != driver.StateInProgress ||
		rec.Fence != a.Record.Fence {
		c.Errorf("under the claim with fence %d the key is %v with fence %d", a.Record.Fence,
			rec.State, rec.Fence)
	}
	k.holders.Add(-1)
	if end := c.finishes(o.change(driver.StateReleased))[0]; end.Err != nil || !end.Held ||
		!end.Written {
		c.Errorf("release by the owner: %v %s", end.Err, describe(end))
	}
	return true
}

// atOnce starts all workers together and waits for them.
func (c *check) atOnce(work func(worker int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for worker := range workers {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			work(worker)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}
