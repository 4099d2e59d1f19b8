package partition

import (
	"context"
	"errors"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
)

// aheadPatience is how long a partition's claimer waits for a message to have its turn.
const aheadPatience = 250 * time.Millisecond

// claimLoop claims what the intake brings, batch by batch, and hands it to the lanes. It
// returns nil when ctx ends, and an error for what must stop the consumer.
func (p *Partition) claimLoop(ctx context.Context) error {
	for {
		batch, err := p.pending.next(ctx, p.cfg.BatchMax)
		if err != nil {
			return nil //nolint:nilerr // the partition ends, and knows why
		}
		if !p.queued.room(ctx, p.cfg.ClaimAhead, aheadPatience) {
			// Everything claimed ahead is stuck behind keys that take long. Other keys
			// must not wait for them: their workers claim, one by one, when they run.
			p.submit(batch)
			continue
		}
		claims, err := p.claimBatch(ctx, batch)
		p.sortBatch(batch, claims, ctx.Err() == nil && err == nil)
		if err != nil {
			return err
		}
	}
}

// claimBatch asks about a batch until the store has answered about every message of it.
// While it cannot, the partition is paused and nothing new runs: fail closed. Messages
// are handed on in the order they came, so the batch goes on as a whole.
func (p *Partition) claimBatch(ctx context.Context, batch []*item) (map[*item]*dedup.Claim, error) {
	claims := make(map[*item]*dedup.Claim, len(batch))
	defer p.gate.Release(flow.StoreDown)
	for n := 0; ; n++ {
		ask := make([]*item, 0, len(batch))
		for _, it := range batch {
			if it.msg.Bad == nil && claims[it] == nil {
				ask = append(ask, it)
			}
		}
		if len(ask) == 0 {
			return claims, nil
		}
		err := p.claimSome(ctx, ask, claims)
		switch {
		case errors.Is(err, dedup.ErrClosed):
			return claims, err
		case err != nil && p.outage(ctx, n, err) != nil:
			return claims, nil // revoked meanwhile
		}
	}
}

// claimSome makes one round trip and returns why a message got no answer.
func (p *Partition) claimSome(ctx context.Context, items []*item, claims map[*item]*dedup.Claim) (unknown error) {
	reqs := make([]dedup.Request, len(items))
	for i, it := range items {
		reqs[i] = p.request(it)
	}
	answers, err := p.cfg.Deduper.ClaimBatch(ctx, reqs)
	if err != nil {
		return err
	}
	for i, c := range answers {
		switch {
		case c.Outcome == dedup.Uncertain:
			claims[items[i]] = c // its worker finds out: that may take long
		case unprocessable(c) != nil:
			items[i].msg.Bad = unprocessable(c)
		case c.Outcome == dedup.Unknown:
			unknown = c.Err()
		default:
			claims[items[i]] = c
		}
	}
	return unknown
}

// unprocessable is what is wrong with the message itself, or with what the store keeps of
// it: asking again will not help. An id is the only part of a request that comes from the
// message.
func unprocessable(c *dedup.Claim) error {
	var input *dedup.InputError
	switch err := c.Err(); {
	case c.Outcome == dedup.Uncertain && dedup.Retryable(err): // Config.Resolve is asked again
	case c.Outcome == dedup.Mismatch, c.Outcome == dedup.Uncertain, errors.Is(err, dedup.ErrUnreadable),
		errors.As(err, &input) && input.Field == "Key":
		return err
	}
	return nil
}

// outage waits before the store is asked again, with the partition paused.
func (p *Partition) outage(ctx context.Context, n int, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // nobody is asking any more: that is no outage
	}
	if n == 0 {
		p.cfg.Logger.Warn("kafkaadapter: paused, the store cannot be asked", "topic", p.at.Topic, "partition", p.at.Partition, "error", err)
	}
	p.gate.Hold(flow.StoreDown)
	return backoff.Sleep(ctx, p.cfg.Retry.Delay(n, 0, nil))
}

// sortBatch acts on the answers in the order of the messages. What is in flight elsewhere
// goes to its lane too: the worker there asks again. When the partition ended meanwhile,
// nothing new is started.
func (p *Partition) sortBatch(batch []*item, claims map[*item]*dedup.Claim, start bool) {
	lanes := make([]*item, 0, len(batch))
	for _, it := range batch {
		c := claims[it]
		switch {
		case c == nil:
		case c.Outcome == dedup.Acquired:
			p.adopt(it, c)
			p.queued.add(it)
		case c.Outcome == dedup.Duplicate:
			p.skip(it, c)
			continue
		}
		lanes = append(lanes, it)
	}
	if start {
		p.submit(lanes)
	} else {
		p.pending.add(lanes) // given back with what was not claimed
	}
}

func (p *Partition) request(it *item) dedup.Request {
	r := dedup.Request{Key: it.msg.ID, Scope: p.cfg.Scope, Origin: p.origin(it)}
	if p.cfg.Fingerprint {
		r.Fingerprint = dedup.FingerprintOf(it.msg.Value)
	}
	return r
}

func (p *Partition) origin(it *item) dedup.Origin {
	return dedup.Origin{
		Source: p.at.Topic, Partition: p.at.Partition, Offset: it.msg.Offset, Generation: p.at.Generation,
	}
}

// adopt takes a won claim over and keeps it alive from now on: the message may have to
// wait for its turn.
func (p *Partition) adopt(it *item, c *dedup.Claim) {
	it.claim = c
	it.msg.Attempt = c.Attempt
	it.run, it.end = c.KeepAlive(p.base)
}

// skip finishes the duplicate of something done.
func (p *Partition) skip(it *item, c *dedup.Claim) {
	if hook := p.cfg.Hooks.Skipped; hook != nil {
		hook(&it.msg, c.Cause)
	}
	p.done(it)
}
