package kafkadriver

import (
	"context"
	"errors"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// aheadPatience is how long a partition's claimer waits until a claimed message has its turn.
const aheadPatience = 250 * time.Millisecond

// claimLoop claims pending messages, batch by batch, and hands them to the queues. It returns nil
// when ctx ends, as it does when the queues stop, and an error that must stop the consumer.
func (p *Partition) claimLoop(ctx context.Context) error {
	var batch []*item
	for {
		clear(batch) // an idle partition keeps no messages
		var err error
		batch, err = p.due(ctx, batch)
		switch {
		case err != nil:
			return nil //nolint:nilerr // the partition ends, and knows why
		case p.cfg.unclaimed():
			p.submit(batch)
			continue
		}
		if !p.queued.room(ctx, p.cfg.Tuning.ClaimAhead, aheadPatience) {
			// Everything claimed ahead is stuck behind keys that take long. Messages of other keys
			// must not wait for them: they are claimed when their turn has come.
			p.submit(batch)
			continue
		}
		err = p.claimBatch(ctx, batch)
		p.sortBatch(batch, ctx.Err() == nil && err == nil)
		if err != nil {
			return err
		}
	}
}

// claimBatch asks the store about a batch until it has an answer for every message. While the store
// cannot answer, the partition is paused and nothing new runs: it fails closed. Messages are handed
// on in the order they came, so the batch continues as a whole.
func (p *Partition) claimBatch(ctx context.Context, batch []*item) error {
	defer p.backpressure.Release(pipeline.StoreDown)
	ask := make([]*item, 0, len(batch))
	for n := 0; ; n++ {
		ask = ask[:0]
		for _, it := range batch {
			if it.bad == nil && it.answer == nil {
				ask = append(ask, it)
			}
		}
		if len(ask) == 0 {
			return nil
		}
		if p.place(ctx, ask) != nil {
			return nil // revoked meanwhile
		}
		err := p.claimSome(ctx, ask)
		switch refusal := p.refused(err); {
		case refusal != nil:
			return refusal
		case errors.Is(err, dedup.ErrClosed):
			return err
		case err != nil && p.outage(ctx, n, err) != nil:
			return nil // revoked meanwhile
		}
	}
}

// claimSome makes one round trip and returns the reason why a message got no answer. A worker finds
// out about an uncertain message, because that may take long.
func (p *Partition) claimSome(ctx context.Context, items []*item) (unknown error) {
	s := newScratch()
	defer s.free()
	for _, it := range items {
		s.requests = append(s.requests, p.request(it))
	}
	answers, err := p.cfg.Deduper.ClaimBatch(ctx, s.requests)
	if err != nil {
		return err
	}
	for i, c := range answers {
		p.cfg.meet(items[i].msg, c)
		switch {
		case c.Outcome == dedup.Uncertain:
			items[i].answer = c
		case Unprocessable(c) != nil:
			items[i].bad = Unprocessable(c)
		case c.Outcome == dedup.Unknown:
			unknown = c.Err()
		default:
			items[i].answer = c
		}
	}
	return unknown
}

// Unprocessable returns what is wrong with the message itself, or with its record, if it would not
// help to ask the store again. The id is the only part of a request that comes from the message.
func Unprocessable(c *dedup.Claim) error {
	if c.Outcome == dedup.Acquired || c.Outcome == dedup.Duplicate || c.Outcome == dedup.InFlight {
		return nil
	}
	var input *dedup.InputError
	switch err := c.Err(); {
	case c.Outcome == dedup.Uncertain && dedup.CanRetry(err): // Config.Resolve is asked again
	case c.Outcome == dedup.Mismatch, c.Outcome == dedup.Uncertain,
		errors.Is(err, driver.ErrUnreadable), errors.As(err, &input) && input.Field == "Key":
		return err
	}
	return nil
}

// outage pauses the partition and waits before the store is asked again.
func (p *Partition) outage(ctx context.Context, n int, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // nobody is asking any more: that is not an outage
	}
	if n == 0 {
		p.cfg.Logger.Warn("kafkaadapter: paused, the store cannot be asked", "topic", p.at.Topic,
			"partition", p.at.Partition, "error", err)
	}
	p.backpressure.Hold(pipeline.StoreDown)
	return backoff.Sleep(ctx, p.cfg.retry.Delay(n, 0, nil))
}

// sortBatch acts on the answers in the order of the messages. A message in flight elsewhere goes to
// its queue too, and the store is asked about it again there. When the partition has ended
// meanwhile, nothing new is started.
func (p *Partition) sortBatch(batch []*item, start bool) {
	queued, skipped := make([]*item, 0, len(batch)), []*item(nil)
	for _, it := range batch {
		c := it.answer
		it.answer = nil
		switch {
		case c == nil:
		case c.Outcome == dedup.Duplicate && p.cfg.Unparked(it.msg, c):
			it.bad = c.Err()
		case c.Outcome == dedup.Duplicate:
			p.cfg.Skip(it.msg, it.otherTopic, c)
			skipped = append(skipped, it)
			continue
		case c.Outcome == dedup.Uncertain:
			it.uncertain = true
			p.noteAttempts(it, c)
		case c.Outcome == dedup.InFlight:
			p.noteAttempts(it, c) // or left alone: it is claimed when its turn has come
		case c.Outcome == dedup.Acquired:
			p.adopt(it, c)
		}
		queued = append(queued, it)
	}
	p.done(skipped...)
	p.queued.addAll(queued)
	if start {
		p.submit(queued)
	} else {
		p.pending.add(queued) // given back with what was not claimed
	}
}

func (p *Partition) request(it *item) dedup.Request {
	it.under = p.handlers()
	r := dedup.Request{
		Key: it.msg.ID, Scope: it.msg.Scope, Origin: p.origins,
		TakeOverOlderGeneration: p.takesOver(it),
		OnlyNew:                 p.unknown(it), Label: p.cfg.label(it), NoResult: true,
	}
	// The generation stays that of the assignment: a member that keeps its partition through a
	// cooperative rebalance continues in a newer one, and must not take over its own claims.
	r.Origin.Offset = it.msg.Offset
	if p.cfg.Fingerprint {
		r.Fingerprint = driver.FingerprintOf(it.msg.Value)
	}
	return r
}

// adopt takes a won claim and keeps it alive from now on: the message may have to wait for its
// turn. The context of its handler ends with the claim, and with the drain.
func (p *Partition) adopt(it *item, c *dedup.Claim) {
	it.claim, it.begun = c, false
	it.notBusy()
	it.over.Store(false)
	it.msg.Attempt = max(c.Attempt, it.carried+1)
	it.run, it.end = c.KeepAlive(it.under) // which does not end the renewal
}
