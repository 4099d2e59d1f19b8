package pipeline

import "time"

// run is the committer's goroutine.
func (c *Committer) run() {
	defer close(c.done)
	ticker := time.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.round(onTick)
		case <-c.kick:
			c.round(onWish)
		case <-c.stopping:
			c.round(onStop)
			return
		}
	}
}

// trigger is why a round is made.
type trigger int

const (
	onTick trigger = iota // the interval is over: also time to repeat
	onWish                // many finished, or somebody waits in Remove
	onStop                // the last round
)

// round marks the watermarks that moved, commits if that is called for, and releases the callers
// that wait in Remove. Only a tick repeats a commit. Under load, while a watermark is stuck, Count
// causes a round every few milliseconds, and each would otherwise send a commit without a new
// offset.
func (c *Committer) round(why trigger) {
	c.finished.Store(0)
	moved, leaving := c.mark()
	switch {
	case why == onStop || len(leaving) > 0:
		c.commitFinally(moved)
	case moved:
		c.commit(false)
	case why == onTick && c.inDoubt():
		c.commit(true)
	}
	c.release(leaving)
}

// mark hands the client every watermark that has moved. It returns the claims in Remove that this
// round has marked for the last time.
func (c *Committer) mark() (moved bool, leaving map[partition]*claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, cl := range c.claims {
		if next, ok := cl.tracker.Watermark(); ok && next > cl.marked {
			c.cfg.Mark(p.topic, p.id, next)
			cl.marked = next
			moved = true
		}
		if cl.leaving != nil {
			if leaving == nil {
				leaving = make(map[partition]*claim)
			}
			leaving[p] = cl
		}
	}
	if moved {
		c.quiet = c.repeats
	}
	return moved, leaving
}

// commit makes one attempt without the lock: it may take long.
func (c *Committer) commit(repeated bool) {
	c.mu.Lock()
	c.stats.Commits++
	if repeated {
		c.stats.Repeated++
		c.quiet = max(0, c.quiet-1)
	}
	c.mu.Unlock()
	c.cfg.Commit()
}

// commitFinally commits for partitions that get no further round.
func (c *Committer) commitFinally(moved bool) {
	for range finalCommits {
		if !moved && !c.inDoubt() {
			return
		}
		c.commit(!moved)
		moved = false
	}
}

// inDoubt reports whether a marked offset may not have reached the coordinator.
func (c *Committer) inDoubt() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unconfirmed() > 0
}

func (c *Committer) unconfirmed() (n int) {
	if c.cfg.Confirmed == nil && c.quiet == 0 {
		return 0
	}
	for p, cl := range c.claims {
		if cl.marked < 0 {
			continue
		}
		if c.cfg.Confirmed != nil {
			if next, ok := c.cfg.Confirmed(p.topic, p.id); ok && next >= cl.marked {
				continue
			}
		}
		n++
	}
	return n
}

// release forgets the claims in Remove, unless a newer claim has taken their place: a Remove that
// gave up has forgotten its own claim, and the partition may have been added again.
func (c *Committer) release(leaving map[partition]*claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, cl := range leaving {
		if c.claims[p] == cl {
			delete(c.claims, p)
		}
		close(cl.leaving)
	}
}
