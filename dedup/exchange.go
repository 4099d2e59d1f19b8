package dedup

import (
	"context"
	"slices"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/coalesce"
)

// CompleteAndClaim is [Deduper.CompleteBatch] of one batch and [Deduper.ClaimBatch] of the next,
// in one round trip where the store can: a consumer that always has a next batch saves half its
// round trips. The ends are on record when the call returns, not before, so commit the offsets
// of done one batch later. End the last batch, and whatever a rebalance takes, with
// CompleteBatch. If a key of reqs is also among done, its answer may be the one from before its
// end. With ErrClosed, the claims of done were ended if possible.
func (d *Deduper) CompleteAndClaim(ctx context.Context, done []Completion,
	reqs []Request) (errs []error, claims []*Claim, err error) {
	if err := d.check(ctx); err != nil {
		return d.CompleteBatch(ctx, done), nil, err
	}
	if !d.life.Enter() {
		return d.CompleteBatch(ctx, done), nil, ErrClosed
	}
	defer d.life.Leave()
	b := d.planBatch(ctx, reqs)
	if d.pairs == nil || len(b.send) == 0 || len(b.send) > storeBatch || len(done) == 0 ||
		len(done) > storeBatch {
		errs = d.CompleteBatch(ctx, done)
		b.learn(ctx, d.sendClaims)
		return errs, b.claims, nil
	}
	x := &exchange{d: d, changes: make(chan []driver.Finish), ended: make(chan []driver.Answer, 1)}
	errs = errorSlabs.Get(len(done))
	broke := make(chan *coalesce.Panic, 1)
	d.life.Begin() // Close waits for it, should the claims panic
	go func() {
		defer d.life.End()
		broke <- x.end(ctx, done, errs)
	}()
	b.learn(ctx, x.claim)
	if p := <-broke; p != nil {
		panic(p)
	}
	return unlessNil(errs), b.claims, nil
}

// end ends what is done. It returns a panic of the store or an observer for the caller to pass on,
// because it runs on another goroutine.
func (x *exchange) end(ctx context.Context, done []Completion,
	errs []error) (broke *coalesce.Panic) {
	defer close(x.changes)
	defer func() {
		if v := recover(); v != nil {
			broke = coalesce.NewPanic(v)
		}
	}()
	x.d.finish(ctx, done, errs, x.finish)
	return nil
}

// exchange joins the first send of the ends and the first send of the claims into one round trip.
// If one of them has to send again, it does so by itself.
type exchange struct {
	d       *Deduper
	changes chan []driver.Finish // closed when the finish is over
	ended   chan []driver.Answer
	// Each side sets its own flag when it makes its first send.
	finishMet, claimMet bool
}

func (x *exchange) finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	if x.finishMet {
		return x.d.sendChanges(ctx, changes)
	}
	x.finishMet = true
	x.changes <- changes
	return answered(<-x.ended, len(changes))
}

func (x *exchange) claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	if x.claimMet {
		return x.d.sendClaims(ctx, reqs)
	}
	x.claimMet = true
	defer close(x.ended) // also when the store panics: the other side must not wait forever
	changes, ok := <-x.changes
	if !ok { // there was nothing to end
		return x.d.sendClaims(ctx, reqs)
	}
	keepApart(changes, reqs)
	ctx, cancel := context.WithTimeout(ctx, x.d.cfg.StoreTimeout)
	defer cancel()
	ended, claimed := x.d.pairs.FinishClaim(ctx, changes, reqs)
	x.ended <- ended
	return answered(claimed, len(reqs))
}

// keepApart lets no request take over a claim that the same exchange ends. The store may
// execute the request first, and then the finished effect would run again.
func keepApart(changes []driver.Finish, reqs []driver.ClaimRequest) {
	if !slices.ContainsFunc(reqs,
		func(r driver.ClaimRequest) bool { return r.TakeOverOlderGeneration }) {
		return
	}
	finished := make(map[driver.ID]bool, len(changes))
	for i := range changes {
		finished[changes[i].ID] = true
	}
	for i := range reqs {
		reqs[i].TakeOverOlderGeneration = reqs[i].TakeOverOlderGeneration && !finished[reqs[i].ID]
	}
}
