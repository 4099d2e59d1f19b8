package dedup

import "context"

// ClaimBatch claims many keys in one round trip per 1024 (on a Redis Cluster per node) and
// returns one Claim per request, in order. Outcomes are per item: an item that is bad,
// or could not be learnt, has Outcome Unknown and says why through [Claim.Err].
//
// A key that occurs again in the batch is an alias of its first occurrence, which is in
// its Claim.Alias. Do not run it: it shares the fate of the first, so acknowledge it
// when that one is recorded, and let it come again when that one is released. Ending it
// is an [*InputError]. Only when the first is a Mismatch and the repetition is none, or is
// in flight elsewhere where the repetition takes over, or was left alone (Request.FirstOnly)
// and the repetition does not, it is asked for too, and is no alias.
//
// Each claim that was won lasts for Config.LeaseTTL from the call on, unless
// [Claim.KeepAlive] renews it: keep alive what may wait or run for longer. Config.Wait
// does not apply: a batch never waits. Nor does Config.Resolve: an uncertain key is
// Uncertain.
//
// The error is non-nil only when nothing was asked: [ErrClosed], or a nil ctx.
func (d *Deduper) ClaimBatch(ctx context.Context, reqs []Request) ([]*Claim, error) {
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	if err := d.life.enter(); err != nil {
		return nil, err
	}
	defer d.life.leave()

	b := d.planBatch(ctx, reqs)
	b.learn(ctx, d.sendClaims)
	return b.claims, nil
}

// claimBatch is a ClaimBatch under way.
type claimBatch struct {
	d       *Deduper
	reqs    []Request
	slab    []Claim // one allocation for all
	claims  []*Claim
	aliases []alias
	send    []ClaimRequest
	index   []int // of each item of send in reqs
}

// alias is a request whose key occurred before in its batch.
type alias struct {
	index, first int // in reqs
	req          *ClaimRequest
}

// planBatch checks the requests, and answers those that need no store.
func (d *Deduper) planBatch(ctx context.Context, reqs []Request) *claimBatch {
	b := &claimBatch{
		d: d, reqs: reqs, slab: make([]Claim, len(reqs)), claims: make([]*Claim, len(reqs)),
		index: make([]int, 0, len(reqs)),
	}
	// What is sent lies in front, in order; what is not, at the back.
	room := make([]ClaimRequest, len(reqs))
	back := len(room)
	firsts := newIDTable(len(reqs))
	defer firsts.free()
	for i := range reqs {
		c := &b.slab[i]
		b.claims[i] = c
		req := &room[len(b.index)]
		var err error
		if *req, err = d.prepare(&reqs[i]); err != nil {
			c.Key, c.d, c.err = reqs[i].Key, d, err
			continue
		}
		first, again := firsts.add(&req.ID, i)
		var cached *Answer
		if !again {
			cached = d.cache.answer(ctx, &req.ID, &req.Fingerprint)
		}
		if !again && cached == nil {
			b.index = append(b.index, i)
			continue
		}
		back--
		room[back] = *req
		if again {
			b.aliases = append(b.aliases, alias{i, first, &room[back]})
		} else {
			d.fillClaim(ctx, c, reqs[i].Key, &room[back], &asked{answer: cached}, true)
		}
	}
	b.send = room[:len(b.index):len(b.index)]
	tokens := newTokens(len(b.send))
	for i := range b.send {
		b.send[i].Token = tokens.next()
	}
	return b
}

// learn asks for what is left, and then answers the aliases.
func (b *claimBatch) learn(ctx context.Context, send func(context.Context, []ClaimRequest) []Answer) {
	d := b.d
	if len(b.send) > 0 {
		asking := d.cache.now()
		var got [][]Answer
		asked := d.ask(ctx, b.send, func(ctx context.Context, reqs []ClaimRequest) []Answer {
			answers := send(ctx, reqs)
			got = append(got, answers)
			return answers
		})
		for n := range asked {
			i, a := b.index[n], &asked[n]
			d.cache.learn(b.send[n].ID, a.answer, asking)
			d.fillClaim(ctx, b.claims[i], b.reqs[i].Key, &b.send[n], a, false)
		}
		askedSlabs.put(asked)
		for _, answers := range got {
			d.recycle(answers)
		}
	}
	for _, a := range b.aliases {
		b.claims[a.index] = d.newAlias(ctx, b.reqs[a.index].Key, a.req, b.claims[a.first])
	}
}

// newAlias makes the claim of a key that occurred before in its batch. What was learnt
// of the first may say nothing about this one: when the first was a Mismatch, this one
// may agree with the record, and asks for itself.
func (d *Deduper) newAlias(ctx context.Context, key string, req *ClaimRequest, first *Claim) *Claim {
	ans := shared(first, req)
	if ans.Outcome == Unknown && ans.Err == nil || first.Observed == InFlight && req.gains(&ans, first.req) {
		return d.claimShared(ctx, key, req)
	}
	c := d.newClaim(ctx, key, req, asked{answer: &ans}, true)
	if ans.Outcome != Mismatch { // which is another message, with a fate of its own
		c.Alias = first
	}
	return c
}

// shared is what a second caller of a key is told while the first one's claim attempt
// is known: the same, except that the right to run is given once.
func shared(first *Claim, req *ClaimRequest) Answer {
	if first.err != nil {
		return Answer{Err: first.err}
	}
	ans := (&Answer{Outcome: first.Observed, Record: first.Record}).clone()
	bound := first.Record.Fingerprint
	if first.Observed == Acquired || first.Observed == Unknown { // Unknown here: FailOpen
		ans.Outcome, bound = InFlight, first.req.Fingerprint
		ans.Record.State = StateInProgress
		ans.Record.Origin, ans.Record.Fingerprint = first.req.Origin, bound
		ans.Record.Remaining = first.req.Lease
	}
	if bound.Conflicts(req.Fingerprint) {
		ans.Outcome = Mismatch
	} else if ans.Outcome == Mismatch {
		// The first was the odd one out; this one may agree with the record.
		ans.Outcome = outcomeOf(first.Record)
	}
	return ans
}

// outcomeOf is what a record means to a caller whose fingerprint agrees with it.
func outcomeOf(rec Record) Outcome {
	switch {
	case rec.State.terminal():
		return Duplicate
	case rec.State == StateUncertain:
		return Uncertain
	case rec.State == StateInProgress && rec.Remaining > 0:
		return InFlight
	}
	return Unknown
}
