// Package engine makes the calls of a store in any layout: one exchange of ends and claims, and one
// script for each item of the other calls.
package engine

import (
	"context"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter/internal/guard"
	"github.com/onceward/onceward/redisadapter/internal/line"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// Layout says what is kept of keys, and how.
type Layout interface {
	// AppendKey appends the name of the record of a key.
	AppendKey(b []byte, id driver.ID) []byte
	// CheckFinish says why the layout refuses a change that is otherwise right.
	CheckFinish(*driver.Finish) error
	// CheckClaim says why the layout refuses a request that is otherwise right.
	CheckClaim(*driver.ClaimRequest) error
	// Run answers the items of an exchange, with the commands that the layout needs.
	Run(ctx context.Context, x *Exchange)
	// Each sends one script per ID.
	Each(ctx context.Context, e *Engine, b *Batch[driver.ID], ids []driver.ID) []driver.Answer
}

// Engine makes calls in a layout. It is safe for concurrent use.
type Engine struct {
	Layout

	Line  *line.Line
	Clock *wire.Clock
	Guard *guard.Amnesia
}

// Key names the record of a key.
func (e *Engine) Key(id driver.ID) string { return string(e.AppendKey(nil, id)) }

// OneServer reports whether a command may take keys of several slots.
func (e *Engine) OneServer() bool { return e.Guard.Cluster == nil }

// Exchange is one call of Finish, Claim, or both.
type Exchange struct {
	*Engine
	Why      line.Purpose
	At       wire.Reading
	Changes  []driver.Finish
	Reqs     []driver.ClaimRequest
	Ended    []driver.Answer
	Claimed  []driver.Answer
	Canaries *guard.Check // nil without an amnesia guard
	Asks     bool         // the requests are for uncertain keys only
}

var answerSlabs wire.Slabs[driver.Answer]

// newAnswers returns n zero answers, and nil for none.
func newAnswers(n int) []driver.Answer {
	if n == 0 {
		return nil
	}
	return answerSlabs.Get(n)
}

// Recycle takes back answers that FinishClaim has returned.
func Recycle(answers []driver.Answer) { answerSlabs.Put(answers) }

// FinishClaim is Finish and then Claim in one round trip. An ID that is in both may be
// claimed first.
func (e *Engine) FinishClaim(ctx context.Context, changes []driver.Finish,
	reqs []driver.ClaimRequest) (ended, claimed []driver.Answer) {
	return e.exchange(ctx, changes, reqs, false)
}

// ClaimUncertain claims a key only if it is uncertain.
func (e *Engine) ClaimUncertain(ctx context.Context, req driver.ClaimRequest) driver.Answer {
	_, claimed := e.exchange(ctx, nil, []driver.ClaimRequest{req}, true)
	return claimed[0]
}

func (e *Engine) exchange(ctx context.Context, changes []driver.Finish, reqs []driver.ClaimRequest,
	asks bool) (ended, claimed []driver.Answer) {
	if len(reqs) > 0 {
		if why := e.Guard.Closed(ctx); why != nil {
			if len(changes) > 0 { // first, because their effects have begun
				ended, _ = e.FinishClaim(ctx, changes, nil)
			}
			return ended, e.peek(ctx, reqs, why)
		}
	}
	x := &Exchange{Engine: e, Why: line.Begins, Changes: changes, Reqs: reqs, Asks: asks,
		Ended: newAnswers(len(changes)), Claimed: newAnswers(len(reqs))}
	if len(changes) > 0 {
		x.Why = line.Ends
	}
	pass, err := e.Line.Enter(x.Why)
	if err != nil {
		x.refuse(err)
		return x.Ended, x.Claimed
	}
	answered := false
	defer func() {
		if !answered { // it panics
			e.Line.Leave(pass, wire.ErrorsOf())
		}
	}()
	x.At = e.Clock.Now(ctx)
	e.Run(ctx, x)
	answered = true
	e.Line.Leave(pass, wire.ErrorsOf(x.Ended, x.Claimed))
	if len(reqs) > 0 && e.Guard.On() {
		x.settle(ctx)
	}
	return x.Ended, x.Claimed
}

// refuse answers what was not sent at all.
func (x *Exchange) refuse(why error) {
	for i := range x.Ended {
		x.Ended[i].Err = wire.Wrap("finish", why)
	}
	for i := range x.Claimed {
		x.Claimed[i].Err = wire.Wrap("claim", why)
	}
}

// Watch makes the exchange read the canaries after its claims.
func (x *Exchange) Watch(ctx context.Context) {
	if len(x.Reqs) > 0 && x.Guard.On() {
		x.Canaries = x.Guard.NewCheck(ctx, len(x.Reqs),
			func(i int) string { return x.Key(x.Reqs[i].ID) })
	}
}

// CheckFinish names what is wrong with a change, before anything is sent.
func (e *Engine) CheckFinish(c *driver.Finish) error {
	if err := wire.CheckFinish(c); err != nil {
		return err
	}
	return e.Layout.CheckFinish(c)
}

// CheckClaim is CheckFinish for a request.
func (e *Engine) CheckClaim(r *driver.ClaimRequest) error {
	if err := r.Check(); err != nil {
		return err
	}
	return e.Layout.CheckClaim(r)
}
