package queue

import (
	"errors"
	"hash/maphash"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
)

// noIDsAtMost is how many messages without an id stop the consumer if none has had one before.
const noIDsAtMost = 3

// ask claims the messages of the batch in one round trip. While the store cannot answer, the
// messages are held: giving them back would use up deliveries.
func (b *batch) ask() {
	var open []*job
	for _, j := range b.jobs {
		if b.cfg.Scope != "" {
			j.d.Scope = b.cfg.Scope
		}
		switch {
		case b.cfg.Unclaimed:
			j.d.Attempt = max(j.d.Deliveries, 1)
		case j.d.ID == "":
			b.withoutID(j)
		default:
			b.identified.Store(true)
			open = append(open, j)
		}
	}
	b.askUntil(open, b.claim)
}

// askLate claims a message whose handler can run at once.
func (b *batch) askLate(j *job) {
	b.askUntil([]*job{j}, func(jobs []*job) []*job { return b.claimOne(jobs[0], false) })
}

// askUntil claims until the store has answered about every message. claim returns the messages
// about which the store has not answered.
func (b *batch) askUntil(open []*job, claim func([]*job) []*job) {
	for n := 0; len(open) > 0; n++ {
		if open = claim(open); len(open) == 0 {
			return
		}
		if n == 0 {
			open[0].warn("the store cannot be asked: messages wait", open[0].err)
		}
		if backoff.Sleep(b.ctx, b.retry.Delay(n, 0, nil)) != nil {
			for _, j := range open {
				j.again(j.err)
			}
			return
		}
	}
}

// withoutID parks a message without an id, unless no message has had one so far: then the adapter
// looks in the wrong place, and Park would empty the queue.
func (b *batch) withoutID(j *job) {
	switch {
	case b.cfg.AllowNoID || b.identified.Load():
		j.reason = ErrNoID
	case b.manyWithoutID(j.d):
		j.again(&UnprocessableError{Scope: j.d.Scope, Err: errFirstNoID})
		j.fatal = true
	default:
		j.again(ErrNoID)
	}
}

// manyWithoutID counts a message without an id, once: a single one may be delivered again and
// again. It is new if the broker says so, or if its payload is.
func (c *Consumer) manyWithoutID(d *Delivery) bool {
	sum := maphash.Bytes(c.seed, d.Payload)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.noIDs) < noIDsAtMost && (d.Deliveries == 1 || !slices.Contains(c.noIDs, sum)) {
		c.noIDs = append(c.noIDs, sum)
	}
	return len(c.noIDs) >= noIDsAtMost
}

// claim claims the messages in one round trip, and returns those that the store has not answered.
func (b *batch) claim(jobs []*job) (open []*job) {
	if len(jobs) == 1 {
		return b.claimOne(jobs[0], true)
	}
	reqs := make([]dedup.Request, len(jobs))
	for i, j := range jobs {
		reqs[i] = b.request(j, true)
	}
	claims, err := b.cfg.Deduper.ClaimBatch(b.ctx, reqs)
	owners := make(map[*dedup.Claim]*job, len(claims))
	for i, j := range jobs {
		if err != nil {
			j.refused(err)
			continue
		}
		c := claims[i]
		owners[c] = j
		switch {
		case c.Outcome == dedup.Unknown:
			if j.refused(c.Err()) {
				open = append(open, j)
			}
		case c.Alias != nil && c.Alias.Outcome == dedup.Acquired:
			j.first = owners[c.Alias]
		case c.Outcome == dedup.Uncertain && b.cfg.Deduper.Config().Resolve != nil:
			j.late = true // a single call asks Resolve
		default:
			j.answered(c, true)
		}
	}
	return open
}

// claimOne is like claim, for a single message. Unlike a batch, its call shares round trips with
// other calls, waits for the Deduper's Config.Wait, and asks its Resolve.
func (b *batch) claimOne(j *job, early bool) (open []*job) {
	req := b.request(j, early)
	c, err := b.cfg.Deduper.Claim(b.ctx, req.Key, func(r *dedup.Request) { *r = req })
	if err == nil {
		j.answered(c, early)
	} else if j.refused(err) {
		return []*job{j}
	}
	return nil
}

// request makes the request of a claim. An early claim wins only a message that nobody has tried:
// an attempt counts when it is claimed, and a message that may kill its process must wait for the
// others before it is claimed.
func (b *batch) request(j *job, early bool) dedup.Request {
	r := dedup.Request{Key: j.d.ID, Scope: j.d.Scope, Origin: driver.Origin{Source: j.d.Scope},
		LikelyDuplicate: j.d.Deliveries > 1, NoResult: true,
		OnlyNew: early && b.cfg.Attempts.Max > 0}
	if b.cfg.Fingerprint {
		r.Fingerprint = driver.FingerprintOf(j.d.Payload)
	}
	return r
}

// refused acts on a claim without an answer, and reports whether it may be asked for again.
func (j *job) refused(err error) bool {
	var input *dedup.InputError
	switch {
	case errors.Is(err, driver.ErrUnreadable), errors.As(err, &input) && input.Field == "Key":
		j.reason = err
	case errors.Is(err, dedup.ErrClosed), errors.As(err, &input):
		j.again(err)
		j.fatal = true
	default:
		j.err = err
		return true
	}
	return false
}

// answered acts on an answer of the store.
func (j *job) answered(c *dedup.Claim, early bool) {
	j.late, j.err = false, nil
	switch {
	case c.Outcome == dedup.Acquired:
		j.claim, j.d.Attempt = c, c.Attempt
		j.ctx, j.cancel = c.KeepAlive(j.b.hard) // the renewal continues until end
		return
	case c.Outcome == dedup.Duplicate && unparked(&c.Record):
		j.reason = c.Err()
		return
	case c.Outcome == dedup.Duplicate:
		j.decision = acknowledge
		if hook := j.b.cfg.Observer.Skipped; hook != nil {
			hook(j.d, c.Cause, c.Record.Age)
		}
		return
	case early && j.b.cfg.Attempts.Max > 0 && c.Outcome == dedup.InFlight &&
		c.Record.Remaining <= 0 && c.Record.Attempt > 0:
		// Not claimed yet: see request. If its handler failed, the key was released; if its process
		// died, its claim has lapsed.
		j.late = true
		j.suspect = c.Record.State == driver.StateInProgress && c.Record.Attempt >= suspectAfter
		return
	case c.Outcome == dedup.InFlight, dedup.CanRetry(c.Err()): // Resolve is asked again
		j.again(c.Err())
	default: // a mismatch, or uncertain for good
		j.reason = c.Err()
		return
	}
	if c.Outcome != dedup.InFlight {
		return
	}
	if left := c.Record.Remaining; left > 0 && j.after > left {
		j.after = left + time.Millisecond
	}
	if hook := j.b.cfg.Observer.Waiting; hook != nil {
		hook(j.d)
	}
}
