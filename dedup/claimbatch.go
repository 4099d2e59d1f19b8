package dedup

import (
	"context"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/idtable"
	"github.com/onceward/onceward/dedup/internal/slab"
)

// ClaimBatch claims many keys in one round trip per 1024 (on a Redis Cluster per node) and
// returns one Claim per request, in order. An item that is bad, or that the store did not
// answer, has Outcome [Unknown]; see [Claim.Err]. The error is non-nil only when nothing was
// asked: ErrClosed, or a nil ctx.
//
// A key that occurs again in the batch is an alias of its first occurrence, to which Claim.Alias
// points. Do not run or end an alias: acknowledge it when the first is recorded, and have it
// redelivered when the first is released. A repetition has a claim of its own, and a nil Alias, if
// it is a [Mismatch]. The same is true in three other cases: only the first is a Mismatch; the
// repetition may take over the claim that the first found in flight; or only the first has
// Request.OnlyNew, and was left alone.
//
// Claims last as for [Deduper.Claim]. Config.Wait and Resolve do not apply.
func (d *Deduper) ClaimBatch(ctx context.Context, reqs []Request) ([]*Claim, error) {
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	if !d.life.Enter() {
		return nil, ErrClosed
	}
	defer d.life.Leave()

	b := d.planBatch(ctx, reqs)
	b.learn(ctx, d.sendClaims)
	return b.claims, nil
}

// Arrays of past batches, for reuse.
var (
	requestSlabs slab.Pool[driver.ClaimRequest]
	indexSlabs   slab.Pool[int]
)

// claimBatch is a ClaimBatch under way.
type claimBatch struct {
	d       *Deduper
	reqs    []Request
	claims  []*Claim
	aliases []alias
	send    []driver.ClaimRequest
	index   []int // where each item of send is in reqs
	// room holds the requests: the sent ones are at the front, in order, and the others at the
	// back. It is put back into the pool when every request has its answer, because then neither
	// the claims nor the store refer to it.
	room   []driver.ClaimRequest
	learnt bool
	kept   *keptRoom // of the claims
}

// alias is a request whose key occurred before in its batch.
type alias struct {
	index, first int // in reqs
	req          *driver.ClaimRequest
}

// planBatch checks the requests, and answers those that need no store.
func (d *Deduper) planBatch(ctx context.Context, reqs []Request) *claimBatch {
	b := &claimBatch{
		d: d, reqs: reqs, claims: make([]*Claim, len(reqs)),
		index: indexSlabs.Get(len(reqs))[:0], room: requestSlabs.Get(len(reqs)),
		kept: new(keptRoom),
	}
	slab := make([]Claim, len(reqs)) // one allocation for all
	said := messages{left: len(reqs)}
	room, back := b.room, len(reqs)
	firsts, ids := idtable.New(len(reqs)), d.digester()
	defer firsts.Free()
	defer digesters.Put(ids)
	ids.tokens.seed(len(reqs))
	for i := range reqs {
		c := &slab[i]
		c.Key, c.d, c.room = reqs[i].Key, d, b.kept
		b.claims[i] = c
		req := &room[len(b.index)]
		id, err := ids.id(&reqs[i])
		if err == nil {
			err = d.prepareAs(id, &reqs[i], req)
		}
		if err != nil {
			c.err = err
			continue
		}
		first, again := firsts.Add((*[16]byte)(&req.ID), i)
		var cached *driver.Answer
		if !again {
			cached = d.cache.answer(ctx, &req.ID, &req.Fingerprint)
		}
		if !again && cached == nil {
			req.Token = ids.tokens.next()
			c.ask(req, said.next(req))
			b.index = append(b.index, i)
			continue
		}
		back--
		room[back] = *req
		if again {
			b.aliases = append(b.aliases, alias{i, first, &room[back]})
		} else {
			c.ask(req, said.next(req))
			d.fill(ctx, c, cached, 0, true)
		}
	}
	b.send = room[:len(b.index):len(b.index)]
	return b
}

// learn asks for what is left, and then answers the aliases.
func (b *claimBatch) learn(ctx context.Context,
	send func(context.Context, []driver.ClaimRequest) []driver.Answer) {
	b.learnt = len(b.send) == 0 || b.ask(ctx, send)
	for _, a := range b.aliases {
		b.claims[a.index] = b.d.newAlias(ctx, b.reqs[a.index].Key, a.req, b.claims[a.first])
	}
	if b.learnt {
		requestSlabs.Put(b.room)
	}
	indexSlabs.Put(b.index)
}

// ask sends b.send, and reports whether the first answers settled every item. If not, the
// store may still be working on the requests.
func (b *claimBatch) ask(ctx context.Context,
	send func(context.Context, []driver.ClaimRequest) []driver.Answer) bool {
	d := b.d
	asking, first := d.cache.now(), d.clock()
	answers := send(ctx, b.send)
	until := d.validFrom(first)
	for i := range answers {
		if !plain(&answers[i]) {
			b.askOn(ctx, asking, first, answers, send)
			return false
		}
	}
	if d.clock() >= until {
		b.askOn(ctx, asking, first, answers, send)
		return false
	}
	for n := range answers {
		b.fill(ctx, n, &answers[n], until, asking)
	}
	d.recycle(answers)
	return true
}

// askOn continues from the answers of the first send.
func (b *claimBatch) askOn(ctx context.Context, asking stamp, first time.Duration,
	answers []driver.Answer,
	send func(context.Context, []driver.ClaimRequest) []driver.Answer) {
	got := [][]driver.Answer{answers}
	asked := b.d.askOn(ctx, first, b.send,
		answers, func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := send(ctx, reqs)
			got = append(got, answers)
			return answers
		})
	for n := range asked {
		b.fill(ctx, n, asked[n].answer, asked[n].validUntil, asking)
	}
	for _, answers := range got {
		b.d.recycle(answers)
	}
}

// fill puts the answer to item n of b.send into its claim.
func (b *claimBatch) fill(ctx context.Context, n int, ans *driver.Answer, validUntil time.Duration,
	asking stamp) {
	b.d.cache.learn(b.send[n].ID, ans, asking)
	c := b.claims[b.index[n]]
	b.d.fill(ctx, c, ans, validUntil, false)
	if c.Outcome == Acquired {
		b.kept.size++
	}
}

// newAlias makes the claim of a key that occurred before in its batch. The answer to the first may
// not hold for the repetition. When the first was a Mismatch, for example, the repetition may agree
// with the record, so newAlias asks the store about it.
func (d *Deduper) newAlias(ctx context.Context, key string, req *driver.ClaimRequest,
	first *Claim) *Claim {
	ans := shared(first, req)
	if ans.Outcome == Unknown && ans.Err == nil ||
		first.Observed == InFlight && gains(req, &ans, first) {
		return d.claimOnce(ctx, key, req, false)
	}
	c := d.newClaim(ctx, key, req, &ans)
	if ans.Outcome != Mismatch { // a Mismatch is another message, and is decided by itself
		c.Alias = first
	}
	return c
}
