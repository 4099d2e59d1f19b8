package kafkadriver

import (
	"context"
	"errors"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// askBatch asks the store, in one round trip, about messages whose turn has come and that hold no
// claim (any more). Those that it wins run next.
//
// It never waits for a key in flight elsewhere. A single claim would wait, for as long as the
// Deduper's configuration says, on a worker that the owner of the key may need.
func (p *Partition) askBatch(batch []task) {
	if batch = p.placed(batch); len(batch) == 0 {
		return
	}
	s := newScratch()
	defer s.free()
	for _, t := range batch {
		s.requests = append(s.requests, p.request(t.Item))
	}
	answers, err := p.cfg.Deduper.ClaimBatch(p.base, s.requests)
	for i, t := range batch {
		if err != nil {
			s.decisions = append(s.decisions, pipeline.Stop(err))
		} else {
			s.decisions = append(s.decisions, p.asked(t.Item, answers[i]))
		}
		// passOn must not read a message that was won: its claim may be given back already
		if err != nil || answers[i].Outcome != dedup.Acquired {
			p.passOn(t.Item)
		}
	}
	pipeline.SettleAll(batch, s.decisions)
	p.giveBackLate(batch)
}

// giveBackLate releases claims that were won after the drain was over: nobody comes for them.
func (p *Partition) giveBackLate(batch []task) {
	if p.queues.Context().Err() == nil {
		return
	}
	for _, t := range batch {
		p.cfg.suspects.end(t.Item)
		if c := p.queued.takeUnbegun(t.Item); c != nil {
			p.releaseClaims([]*item{t.Item}, []*dedup.Claim{c})
		}
	}
}

// asked decides what an answer means for a message whose turn it is. If a worker must act on the
// answer, asked notes that in the item, which then gets a worker at once.
func (p *Partition) asked(it *item, c *dedup.Claim) pipeline.Decision {
	next := pipeline.RetryAfter(0)
	left := p.left(it, c)
	p.cfg.meet(it.msg, c)
	if c.Outcome != dedup.InFlight || left {
		it.notBusy()
	}
	if err := Unprocessable(c); err != nil && c.Outcome != dedup.Uncertain {
		it.bad = err
		return next
	}
	if c.Outcome == dedup.Unknown && p.refused(c.Err()) != nil {
		return pipeline.Stop(p.refused(c.Err()))
	}
	p.noteAttempts(it, c)
	switch c.Outcome {
	case dedup.Acquired:
		it.polls = 0
		p.adopt(it, c)
		p.queued.add(it) // it waits for a worker
		return next
	case dedup.Uncertain:
		it.uncertain = true
		return next
	case dedup.Duplicate:
		if p.cfg.Unparked(it.msg, c) {
			it.bad = c.Err()
			return next
		}
		p.cfg.Skip(it.msg, it.otherTopic, c)
		p.done(it)
		return pipeline.Done()
	case dedup.InFlight:
		if left {
			return next // the store is asked again, now that its attempts are known
		}
		return p.busy(it, c)
	}
	return pipeline.RetryAfter(p.poll(it))
}

// busy makes a message that is in flight elsewhere wait, but not forever.
func (p *Partition) busy(it *item, c *dedup.Claim) pipeline.Decision {
	if hook := p.cfg.Observer.Waiting; hook != nil {
		hook(it.msg)
	}
	w := it.wait()
	if w.busy.IsZero() {
		w.busy = time.Now()
	}
	wait := p.poll(it)
	limit := p.cfg.Attempts.BusyTimeout
	if limit > 0 && p.cfg.Park != nil && time.Since(w.busy) >= limit {
		it.bad = kafkaadapter.ErrBusy
		return pipeline.RetryAfter(0)
	}
	if left := c.Record.Remaining; left > 0 {
		wait = min(wait, left+time.Millisecond)
	}
	return pipeline.RetryAfter(wait)
}

// findOut claims an uncertain message by itself, which calls Config.Resolve if there is one.
func (p *Partition) findOut(ctx context.Context, t task) {
	if p.cfg.Own != nil && len(p.placed([]task{t})) == 0 {
		return
	}
	it := t.Item
	req := p.request(it)
	it.uncertain = false
	c, err := p.cfg.Deduper.Claim(ctx, req.Key, func(r *dedup.Request) { *r = req })
	decision := p.foundOut(it, c, err)
	p.passOn(it)
	t.Settle(decision)
	p.giveBackLate([]task{t})
}

// foundOut decides what the result of findOut means.
func (p *Partition) foundOut(it *item, c *dedup.Claim, err error) pipeline.Decision {
	if err == nil {
		p.cfg.meet(it.msg, c)
	}
	switch {
	case errors.Is(err, dedup.ErrClosed):
		return pipeline.Stop(err)
	case err != nil:
		return pipeline.RetryAfter(p.poll(it))
	case c.Outcome == dedup.Uncertain && Unprocessable(c) != nil:
		it.bad = Unprocessable(c)
		return pipeline.RetryAfter(0)
	case c.Outcome == dedup.Uncertain:
		return pipeline.RetryAfter(p.poll(it))
	case c.Outcome == dedup.Duplicate && FoundFailed(c): // nobody has put the message aside yet
		it.bad = c.Err()
		return pipeline.RetryAfter(0)
	}
	return p.asked(it, c)
}

// poll returns how long a message waits before the store is asked again, because the message is in
// flight elsewhere or the store did not answer. The messages behind it in its queue give up their
// claims when the wait becomes long.
func (p *Partition) poll(it *item) time.Duration {
	w := it.wait()
	if it.polls == 0 {
		w.polling, w.backoff = time.Now(), 0
	}
	if time.Since(w.polling) >= yieldAfter {
		p.yield(it)
	}
	w.backoff = p.cfg.retry.Delay(it.polls, w.backoff, nil)
	it.polls++
	return w.backoff
}
