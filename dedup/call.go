package dedup

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/coalesce"
	"github.com/onceward/onceward/dedup/internal/slab"
)

// item is what a single call asks the store: the end of a claim, a claim or a renewal. If all
// three are nil, it is a lookup. The store may keep these requests, so they are not reused.
type item struct {
	end    *[1]driver.Finish
	req    *[1]driver.ClaimRequest
	note   *[1]driver.Renewal
	answer driver.Answer
}

type (
	coalescer = coalesce.Coalescer[item]
	oneCall   = coalesce.Call[item]
)

// coalesceCalls sets up the batches of single calls. If the store can do both in one round trip,
// ends and claims share batches, with the ends first.
func (d *Deduper) coalesceCalls() {
	limiter := coalesce.NewLimiter()
	d.claims, d.notes, d.reads = d.newCoalescer(limiter), d.newCoalescer(limiter),
		d.newCoalescer(limiter)
	d.claims.Abandoned = d.releaseAbandoned
	d.reads.Share = func(to, from *item) { to.answer = cloneAnswer(&from.answer) }
	if d.pairs, _ = d.store.(driver.FinishClaimer); d.pairs != nil {
		d.ends = d.claims
	} else {
		d.ends = d.newCoalescer(limiter)
	}
}

func (d *Deduper) newCoalescer(limiter *coalesce.Limiter) *coalescer {
	return &coalescer{
		Send: d.sendCalls, Fail: func(q *item, err error) { q.answer = failedAnswer(err) },
		Err:     func(q *item) error { return q.answer.Err },
		Timeout: d.cfg.StoreTimeout, Life: &d.life, Limiter: limiter,
	}
}

// sendCalls makes one call of the store for single calls of one kind, or for ends and claims in
// that order.
func (d *Deduper) sendCalls(ctx context.Context, calls []*oneCall) {
	if len(calls) > 1 {
		d.sendBatch(ctx, calls)
		return
	}
	var answers []driver.Answer
	switch q := &calls[0].Of; {
	case q.req != nil:
		answers = d.store.Claim(ctx, q.req[:])
	case q.end != nil:
		answers = d.store.Finish(ctx, q.end[:])
	case q.note != nil:
		answers = d.store.Renew(ctx, q.note[:])
	default:
		answers = d.store.Lookup(ctx, []driver.ID{calls[0].ID})
	}
	d.giveOut(calls, answers)
}

func (d *Deduper) sendBatch(ctx context.Context, calls []*oneCall) {
	n := 0
	for n < len(calls) && calls[n].Of.end != nil {
		n++
	}
	ends := gather(calls[:n], &changeSlabs, func(c *oneCall) *driver.Finish { return &c.Of.end[0] })
	var reqs []driver.ClaimRequest
	var learnt bool
	switch q := &calls[len(calls)-1].Of; {
	case q.req != nil:
		reqs = gather(calls[n:], &requestSlabs,
			func(c *oneCall) *driver.ClaimRequest { return &c.Of.req[0] })
		if n == 0 {
			learnt = d.giveOut(calls, d.store.Claim(ctx, reqs))
			break
		}
		ended, claimed := d.pairs.FinishClaim(ctx, ends, reqs)
		learnt = d.giveOut(calls[:n], ended)
		learnt = d.giveOut(calls[n:], claimed) && learnt
	case q.end != nil:
		learnt = d.giveOut(calls, d.store.Finish(ctx, ends))
	case q.note != nil:
		d.giveOut(calls, d.store.Renew(ctx, gather(calls, nil,
			func(c *oneCall) *driver.Renewal { return &c.Of.note[0] })))
	default:
		d.giveOut(calls, d.store.Lookup(ctx, gather(calls, nil,
			func(c *oneCall) *driver.ID { return (*driver.ID)(&c.ID) })))
	}
	if learnt && ends != nil {
		changeSlabs.Put(ends)
	}
	if learnt && reqs != nil {
		requestSlabs.Put(reqs)
	}
}

// gather copies the requests of calls into one array. It returns nil for no calls.
func gather[R any](calls []*oneCall, slabs *slab.Pool[R], of func(*oneCall) *R) (items []R) {
	switch {
	case len(calls) == 0:
		return nil
	case slabs == nil:
		items = make([]R, len(calls))
	default:
		items = slabs.Get(len(calls))
	}
	for i, c := range calls {
		items[i] = *of(c)
	}
	return items
}

// giveOut gives every call its answer, and reports whether the store has answered all of them. If
// not, the store may still be working on the others.
func (d *Deduper) giveOut(calls []*oneCall, answers []driver.Answer) (learnt bool) {
	answers = answered(answers, len(calls))
	learnt = true
	for i, c := range calls {
		c.Of.answer = answers[i]
		learnt = learnt && answers[i].Err == nil
	}
	if learnt {
		d.recycle(answers)
	}
	return learnt
}

// take returns the answer to a call for which Do returned err.
func take(c *coalescer, call *oneCall, err error) driver.Answer {
	if err != nil {
		return failedAnswer(err)
	}
	ans := call.Of.answer
	c.Done(call)
	return ans
}

func (d *Deduper) askClaim(ctx context.Context, req *[1]driver.ClaimRequest) driver.Answer {
	call := d.claims.New(req[0].ID, false)
	call.Of.req = req
	return take(d.claims, call, d.claims.Do(ctx, call))
}

func (d *Deduper) askEnd(ctx context.Context, change *[1]driver.Finish) driver.Answer {
	call := d.ends.New(change[0].ID, true)
	call.Of.end = change
	return take(d.ends, call, d.ends.Do(ctx, call))
}

func (d *Deduper) askRenewal(ctx context.Context, renewal driver.Renewal) driver.Answer {
	call := d.notes.New(renewal.ID, false)
	call.Of.note = &[1]driver.Renewal{renewal}
	return take(d.notes, call, d.notes.Do(ctx, call))
}

func (d *Deduper) askRecord(ctx context.Context, id driver.ID) driver.Answer {
	call := d.reads.New(id, false)
	return take(d.reads, call, d.reads.Do(ctx, call))
}

// failedAnswer returns the answer to a call that has none from its store.
func failedAnswer(err error) driver.Answer {
	var left *coalesce.AbandonedError
	if errors.As(err, &left) {
		return driver.Answer{Err: err}
	}
	return driver.Answer{Err: fmt.Errorf("%w: %w", ErrUnknown, err)}
}
