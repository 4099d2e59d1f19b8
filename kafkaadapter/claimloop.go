package kafkaadapter

import (
	"context"
	"errors"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
)

// claimLoop claims what the intake brings, batch by batch, and hands it to the lanes.
func (p *partition) claimLoop(ctx context.Context) {
	for {
		batch, err := p.pending.next(ctx, p.a.cfg.BatchMax)
		if err != nil {
			return
		}
		p.claimBatch(ctx, batch)
	}
}

// claimBatch asks about a batch until the store has answered about every message of it.
// While it cannot, the partition is paused and nothing runs: fail closed. Messages are
// handed on in the order they came, so the batch goes on as a whole.
func (p *partition) claimBatch(ctx context.Context, batch []*item) {
	claims := make(map[*item]*dedup.Claim, len(batch))
	for n := 0; ; n++ {
		ask := make([]*item, 0, len(batch))
		for _, it := range batch {
			if it.bad == nil && claims[it] == nil {
				ask = append(ask, it)
			}
		}
		if len(ask) == 0 {
			break
		}
		if !p.claimSome(ctx, ask, claims) && p.outage(ctx, n) != nil {
			break // revoked meanwhile
		}
	}
	p.gate.Release(flow.StoreDown)
	p.sortBatch(batch, claims)
}

// claimSome makes one round trip and reports whether every message got an answer.
func (p *partition) claimSome(ctx context.Context, items []*item, claims map[*item]*dedup.Claim) bool {
	reqs := make([]dedup.Request, len(items))
	for i, it := range items {
		reqs[i] = p.request(it)
	}
	answers, err := p.a.cfg.Deduper.ClaimBatch(ctx, reqs)
	if err != nil {
		return false
	}
	all := true
	for i, c := range answers {
		var input *dedup.InputError
		switch err := c.Err(); {
		case errors.As(err, &input):
			items[i].bad = err
		case c.Outcome == dedup.Unknown && (c.Alias == nil || c.Alias.Outcome == dedup.Unknown) && !errors.Is(err, dedup.ErrUnreadable):
			all = false
		default:
			claims[items[i]] = c
		}
	}
	return all
}

// sortBatch acts on the answers in the order of the messages. What got none (the
// partition was revoked during an outage) and what has to wait goes to its lane too:
// the worker there asks again.
func (p *partition) sortBatch(batch []*item, claims map[*item]*dedup.Claim) {
	lanes := make([]*item, 0, len(batch))
	for _, it := range batch {
		c := claims[it]
		switch {
		case c == nil:
		case c.Outcome == dedup.Acquired:
			p.adopt(it, c)
		case c.Outcome == dedup.Duplicate:
			p.skip(it, c)
			continue
		case c.Outcome == dedup.Mismatch, c.Outcome == dedup.Uncertain, errors.Is(c.Err(), dedup.ErrUnreadable):
			it.bad = c.Err()
		}
		lanes = append(lanes, it)
	}
	p.submit(lanes)
}

func (p *partition) request(it *item) dedup.Request {
	r := dedup.Request{Key: it.msg.ID, Scope: p.a.cfg.Scope, Origin: p.origin(it)}
	if p.a.cfg.Fingerprint {
		r.Fingerprint = dedup.FingerprintOf(it.msg.Value)
	}
	return r
}

func (p *partition) origin(it *item) dedup.Origin {
	return dedup.Origin{
		Source: p.topic, Partition: p.number, Offset: it.msg.Offset, Generation: p.session.GenerationID(),
	}
}

// adopt takes a won claim over and keeps it alive from now on: the message may have to
// wait for its turn.
func (p *partition) adopt(it *item, c *dedup.Claim) {
	it.claim = c
	it.msg.Attempt = c.Attempt
	it.run, it.end = c.KeepAlive(p.base)
}

// skip finishes the duplicate of something done.
func (p *partition) skip(it *item, c *dedup.Claim) {
	if hook := p.a.cfg.Observer.Skipped; hook != nil {
		hook(it.msg, c.Cause)
	}
	p.done(it)
}

// done finishes a message: its record exists, or it is parked durably.
func (p *partition) done(it *item) {
	p.drop(it)
	if it.slot.Done() {
		p.committer.Finished(1)
		p.gate.Check()
	}
}
