package kafkasarama

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// wrappedClaim is the claim that the inner handler sees.
type wrappedClaim struct {
	sarama.ConsumerGroupClaim
	engine  *kafkadriver.Engine
	session *wrappedSession
	at      topicPartition
	out     chan *sarama.ConsumerMessage
	base    context.Context // outlives the session
	ctx     context.Context // ends with the claim
	stop    context.CancelFunc
	tracker pipeline.Tracker
	early   []*heldMessage // without an id, before the first one with an id

	// marking is held by the goroutine that ends claims.
	marking chan struct{}

	mu       sync.Mutex
	held     []*heldMessage // claimed and not ended, in the order of their offsets
	metadata string         // of the last mark
	passed   int64          // marked with the real session
	tired    bool           // a mark has given up: giveBack records what is marked later
	err      error          // why the claim cannot continue
}

// heldMessage is a message whose claim was won. Its claim belongs to the feed, and then to the
// goroutine that holds marking. mu guards the last fields.
type heldMessage struct {
	msg         kafkaadapter.Message
	otherSource bool // its first topic is another one: its record may be from there
	slot        pipeline.Slot
	request     dedup.Option
	answer      *dedup.Claim
	end         context.CancelFunc // of the renewal
	lost        bool               // the loss of its claim was reported

	since  time.Time      // when it was yielded; zero: not yet
	done   bool           // marked by the handler
	copies []*heldMessage // done when it is recorded
}

// firstNoIDs is how many messages without an id end a claim if no message has had an id; see
// kafkaadapter.Allow.
const firstNoIDs = 3

// Messages implements sarama.ConsumerGroupClaim.
func (c *wrappedClaim) Messages() <-chan *sarama.ConsumerMessage { return c.out }

// feed claims messages one by one and yields those that it wins, until the claim ends.
func (c *wrappedClaim) feed() {
	defer close(c.out)
	defer c.stop()
	for {
		select {
		case m, open := <-c.ConsumerGroupClaim.Messages():
			if !open {
				return
			}
			if err := c.take(m); err != nil {
				c.fail(err)
				return
			}
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *wrappedClaim) take(m *sarama.ConsumerMessage) error {
	slot, err := c.tracker.Track(m.Offset)
	if err != nil {
		return err
	}
	h := &heldMessage{msg: messageOf(m), slot: slot}
	var bad error
	h.otherSource, bad = c.engine.Identify(&h.msg)
	switch {
	case c.engine.Park == nil || c.engine.Allow.NoID: // no message waits for an id
	case c.engine.HasIDs(c.at.topic, c.at.partition):
		for _, odd := range c.early {
			if err := c.park(odd, kafkaadapter.ErrNoID); err != nil || c.ctx.Err() != nil {
				return err
			}
		}
		c.early = nil
	case errors.Is(bad, kafkaadapter.ErrNoID):
		if c.early = append(c.early, h); len(c.early) == firstNoIDs {
			return c.unprocessable(c.early[0], kafkadriver.ErrFirstNoIDs)
		}
		return nil
	}
	if bad == nil {
		h.request = c.engine.RequestOf(&h.msg)
		bad, err = c.claim(h)
	}
	switch {
	case err != nil:
		return err
	case bad != nil:
		return c.park(h, bad)
	case h.end != nil:
		c.yield(h, m)
	}
	return nil
}

// yield gives a won message to the handler.
func (c *wrappedClaim) yield(h *heldMessage, m *sarama.ConsumerMessage) {
	c.mu.Lock()
	c.held = append(c.held, h)
	c.mu.Unlock()
	select {
	case c.out <- m:
		c.mu.Lock()
		h.since = time.Now()
		c.mu.Unlock()
	case <-c.ctx.Done():
	}
}

// claim asks the store until the message is won, done, or known to be one that cannot be claimed.
func (c *wrappedClaim) claim(h *heldMessage) (bad, err error) {
	var busy time.Time
	for n := 0; ; n++ {
		wait := c.engine.Pause(n, c.engine.Attempts.RetryMax)
		answer, err := c.engine.Deduper.Claim(c.ctx, h.msg.ID, h.request)
		var input *dedup.InputError
		switch {
		case err == nil:
			h.answer = answer
		case errors.Is(err, dedup.ErrClosed):
			return nil, err
		case errors.Is(err, driver.ErrUnreadable),
			errors.As(err, &input) && input.Field == "Key":
			return err, nil
		case errors.As(err, &input):
			return nil, err
		case c.ctx.Err() != nil:
			return nil, nil
		case n == 0:
			c.warn("the store cannot be asked", h, err)
		}
		switch {
		case err != nil:
		case answer.Outcome == dedup.Acquired:
			h.msg.Attempt = answer.Attempt
			_, h.end = answer.KeepAlive(c.base)
			return nil, nil
		case kafkadriver.Unprocessable(answer) != nil,
			answer.Outcome == dedup.Duplicate && c.engine.Unparked(&h.msg, answer):
			return answer.Err(), nil
		case answer.Outcome == dedup.Duplicate:
			c.skip(h)
			c.pass()
			return nil, nil
		case answer.Outcome == dedup.InFlight && c.follows(h):
			return nil, nil
		case answer.Outcome == dedup.InFlight:
			if hook := c.engine.Observer.Waiting; hook != nil {
				hook(&h.msg)
			}
			if busy.IsZero() {
				busy = time.Now()
			}
			if c.engine.Park != nil && time.Since(busy) >= c.engine.Attempts.BusyTimeout {
				return kafkaadapter.ErrBusy, nil
			}
			if left := answer.Record.Remaining; left > 0 {
				wait = min(wait, left+time.Millisecond)
			}
		}
		if kafkadriver.Sleep(c.ctx, wait) != nil {
			return nil, nil
		}
	}
}

// follows looks for a message with the same id that this claim holds, and makes h its copy. It does
// not wait until the handler marks the first one: the handler may do that only after it has got
// later messages, so the wait could last forever.
func (c *wrappedClaim) follows(h *heldMessage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, first := range c.held {
		if first.msg.ID == h.msg.ID && first.msg.Scope == h.msg.Scope &&
			len(first.copies) < c.engine.Tuning.HighWater {
			first.copies = append(first.copies, h)
			return true
		}
	}
	return false
}

func (c *wrappedClaim) skip(h *heldMessage) {
	c.engine.Skip(&h.msg, h.otherSource, h.answer)
	h.slot.Done()
}

func (c *wrappedClaim) unprocessable(h *heldMessage, reason error) error {
	return &kafkaadapter.UnprocessableError{Topic: c.at.topic, Partition: c.at.partition,
		Offset: h.msg.Offset, Err: reason}
}

// park puts aside a message that cannot be claimed.
func (c *wrappedClaim) park(h *heldMessage, reason error) error {
	if c.engine.Park == nil {
		return c.unprocessable(h, fmt.Errorf("there is no Config.Park: %w", reason))
	}
	for n := 0; ; n++ {
		err := c.callPark(h, reason)
		if err == nil {
			break
		}
		if c.ctx.Err() == nil {
			c.warn("message could not be parked", h, err)
		}
		if c.engine.Backoff(c.ctx, n) != nil {
			return nil
		}
	}
	if hook := c.engine.Observer.Parked; hook != nil {
		hook(&h.msg, reason)
	}
	h.slot.Done()
	c.pass()
	return nil
}

func (c *wrappedClaim) callPark(h *heldMessage, reason error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("kafkasarama: Config.Park panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return c.engine.Park(c.ctx, &h.msg, reason)
}

func (c *wrappedClaim) warn(what string, h *heldMessage, err error) {
	c.engine.Logger.Warn("kafkasarama: "+what, "topic", c.at.topic, "partition", c.at.partition,
		"offset", h.msg.Offset, "error", err)
}

// watch ends the claim when the handler does not mark a message.
func (c *wrappedClaim) watch() {
	limit := c.engine.Attempts.BusyTimeout
	for kafkadriver.Sleep(c.ctx, max(limit/10, time.Millisecond)) == nil {
		c.mu.Lock()
		var oldest *heldMessage
		if len(c.held) > 0 && !c.held[0].done && !c.held[0].since.IsZero() &&
			time.Since(c.held[0].since) >= limit {
			oldest = c.held[0]
		}
		c.mu.Unlock()
		if oldest != nil {
			c.fail(c.unprocessable(oldest, fmt.Errorf("%w for %v", ErrUnmarked, limit)))
			c.stop()
		}
	}
}

// fail notes and reports why the claim cannot continue. The handler may take long to return.
func (c *wrappedClaim) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	c.err = cmp.Or(c.err, err)
	c.mu.Unlock()
	if first {
		c.engine.GroupError(err)
	}
}

func (c *wrappedClaim) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
