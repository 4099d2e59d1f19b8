package kafkasarama

import (
	"context"
	"errors"
	"slices"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// mark records the messages that were yielded below an offset, and then marks the watermark with
// the group.
func (c *wrappedClaim) mark(next int64, metadata string) {
	over, last := c.note(next, metadata)
	if hook := c.engine.Observer.PassedOver; hook != nil {
		for _, h := range over {
			hook(&h.msg)
		}
	}
	ctx, end := c.patience()
	defer end()
	if last || !c.begin(ctx) {
		return
	}
	defer c.over()
	left := c.marked()
	for n := 0; len(left) > 0; n++ {
		var err error
		left, err = c.record(ctx, left)
		switch {
		case err == nil:
			continue
		case n == 0:
			c.warn("effect is not known to be recorded", left[0], err)
		case errors.Is(err, dedup.ErrClosed):
			c.fail(err)
			c.stop()
		}
		if c.engine.Backoff(ctx, n) != nil { // not known to be recorded, so not marked
			for _, h := range left {
				c.unrecorded(h, err)
			}
			c.mu.Lock()
			c.tired = true
			c.mu.Unlock()
			return
		}
	}
	c.pass()
}

// note notes that the handler is done with the messages that it got below an offset. It returns
// those that were passed over, and whether a mark has given up, so that the rest is recorded only
// at the end. A message that is on its way to the handler does not count as yielded yet, unless it
// is the one that is marked.
func (c *wrappedClaim) note(next int64, metadata string) (over []*heldMessage, tired bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.metadata = metadata
	for _, h := range c.held {
		if !h.done && h.msg.Offset < next && (!h.since.IsZero() || h.msg.Offset == next-1) {
			h.done = true
			over = append(over, h)
		}
	}
	return over[:max(0, len(over)-1)], c.tired
}

// marked returns the messages to record.
func (c *wrappedClaim) marked() []*heldMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.held), func(h *heldMessage) bool { return !h.done })
}

// patience returns the context of a mark: it ends some time after the claim, because effects that
// have happened must be recorded.
func (c *wrappedClaim) patience() (context.Context, func()) {
	ctx, cancel := context.WithCancel(c.base)
	stop := context.AfterFunc(c.ctx, func() {
		_ = kafkadriver.Sleep(ctx, kafkadriver.CommitTimeout)
		cancel()
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// begin waits until nobody else ends claims.
func (c *wrappedClaim) begin(ctx context.Context) bool {
	select {
	case c.marking <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *wrappedClaim) over() { <-c.marking }

// record ends claims in one exchange. It returns the messages that may not be on record, and why.
func (c *wrappedClaim) record(ctx context.Context,
	all []*heldMessage) (left []*heldMessage, why error) {
	done := make([]dedup.Completion, len(all))
	for i, h := range all {
		done[i] = dedup.Completion{Claim: h.answer, InTime: true}
	}
	errs := c.engine.Deduper.CompleteBatch(ctx, done)
	recorded := make(map[*heldMessage]bool, len(all))
	for i, h := range all {
		var err error
		if errs != nil {
			err = errs[i]
		}
		if err == nil {
			if hook := c.engine.Observer.Recorded; hook != nil {
				hook(&h.msg, 0)
			}
		} else if errors.Is(err, dedup.ErrLeaseLost) {
			c.unrecorded(h, err)
			err = c.look(ctx, h)
		}
		if recorded[h] = err == nil; err != nil {
			left, why = append(left, h), err
		}
	}
	c.finish(recorded)
	return left, why
}

func (c *wrappedClaim) unrecorded(h *heldMessage, err error) {
	if hook := c.engine.Observer.Unrecorded; hook != nil && !h.lost {
		hook(&h.msg, err)
	}
	h.lost = true
}

// look asks what happened to a message whose claim was lost before its record, and returns nil if
// another owner has recorded it. Otherwise the message is claimed again, and the next exchange
// records it.
func (c *wrappedClaim) look(ctx context.Context, h *heldMessage) error {
	answer, err := c.engine.Deduper.Claim(ctx, h.msg.ID, h.request)
	switch {
	case err != nil:
		return err
	case answer.Outcome == dedup.Duplicate:
		return nil
	case answer.Outcome == dedup.Acquired:
		h.end()
		h.answer = answer
		_, h.end = answer.KeepAlive(c.base)
	}
	return dedup.ErrLeaseLost
}

// finish drops the messages that are on record, and their copies.
func (c *wrappedClaim) finish(recorded map[*heldMessage]bool) {
	var copies []*heldMessage
	c.mu.Lock()
	c.held = slices.DeleteFunc(c.held, func(h *heldMessage) bool {
		if recorded[h] {
			copies = append(copies, h.copies...)
		}
		return recorded[h]
	})
	c.mu.Unlock()
	for h, on := range recorded {
		if on {
			h.end()
			h.slot.Done()
		}
	}
	for _, h := range copies {
		c.skip(h)
	}
}

// pass marks the watermark with the real session.
func (c *wrappedClaim) pass() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next, ok := c.tracker.Watermark(); ok && next > c.passed {
		c.passed = next
		c.session.ConsumerGroupSession.MarkOffset(c.at.topic, c.at.partition, next, c.metadata)
	}
}

// reset goes back to an offset, but never beyond what is recorded.
func (c *wrappedClaim) reset(offset int64, metadata string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, ok := c.tracker.Watermark()
	if !ok {
		next = c.InitialOffset()
	}
	if offset = min(offset, next); offset >= 0 { // otherwise nothing is committed yet
		c.session.ConsumerGroupSession.ResetOffset(c.at.topic, c.at.partition, offset, metadata)
	}
}

// giveBack releases the claims of messages that were not marked, and tries a last time to record
// those that were. If that fails, their claims lapse, although the effects have happened.
func (c *wrappedClaim) giveBack() {
	_ = c.begin(c.base) // a mark does not last long after the claim
	defer c.over()
	c.mu.Lock()
	held := c.held
	c.held = nil
	c.mu.Unlock()
	if len(held) == 0 {
		return
	}
	done := make([]dedup.Completion, len(held))
	for i, h := range held {
		h.end()
		done[i] = dedup.Completion{Claim: h.answer, InTime: true}
		if !h.done {
			done[i] = dedup.Completion{Claim: h.answer, Err: kafkadriver.ErrRevoked,
				NotAttempted: h.since.IsZero()}
		}
	}
	ctx, cancel := context.WithTimeout(c.base, kafkadriver.CommitTimeout)
	defer cancel()
	c.engine.Deduper.CompleteBatch(ctx, done)
}
