package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter/internal/guard"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// giveBackWithin bounds the release of claims that are not granted after all.
const giveBackWithin = time.Second

// settle decides whether the claims of an exchange may be granted. They may only if the canaries
// existed after the claims, new connections lead to known servers, and no server has evicted keys
// since the guard last accounted for its evictions.
func (x *Exchange) settle(ctx context.Context) {
	granted := guard.AcquiredOf(x.Claimed)
	if x.Canaries == nil || len(granted) == 0 {
		return
	}
	var back []int
	for _, i := range granted {
		if err := x.Canaries.Unseen(i); err != nil {
			x.Claimed[i] = driver.Answer{Err: wire.Wrap("claim",
				fmt.Errorf("the canary could not be read: %w", err))}
			back = append(back, i)
		}
	}
	why := x.Guard.Suspicious(ctx, x.Canaries)
	if granted = guard.AcquiredOf(x.Claimed); why != nil && len(granted) > 0 {
		back = append(back, x.judge(ctx, granted, why)...)
	}
	x.giveBack(ctx, back)
}

// judge applies the policy to claims that were won, and returns those to give back.
func (x *Exchange) judge(ctx context.Context, granted []int, why error) (back []int) {
	switch x.Guard.Policy {
	case guard.AllowAndFlag:
		x.Guard.Flag(len(granted), why)
		return nil
	case guard.AskSecondary:
		return x.askSecondary(ctx, granted, why)
	}
	for _, i := range granted {
		x.Claimed[i] = driver.Answer{Err: wire.Wrap("claim", why)}
	}
	return granted
}

// askSecondary asks the other store about claims that were won.
func (x *Exchange) askSecondary(ctx context.Context, granted []int,
	why error) (back []int) {
	ids := make([]driver.ID, len(granted))
	for n, i := range granted {
		ids[n] = x.Reqs[i].ID
	}
	answers := x.Guard.Secondary.Lookup(ctx, ids)
	for n, i := range granted {
		err := fmt.Errorf("%w; Options.Secondary gave %d answers for %d IDs", why,
			len(answers), len(ids))
		var rec driver.Record
		if len(answers) == len(ids) {
			rec = answers[n].Record
			if err = answers[n].Err; err != nil {
				err = fmt.Errorf("%w; and Options.Secondary does not know: %w", why, err)
			}
		}
		if err != nil {
			x.Claimed[i] = driver.Answer{Err: wire.Wrap("claim", err)}
			back = append(back, i)
		} else if ans, known := recorded(&x.Reqs[i], rec); known {
			x.Claimed[i] = ans
			back = append(back, i)
		}
	}
	return back
}

// recorded answers a claim from a record alone, where that is possible.
func recorded(r *driver.ClaimRequest, rec driver.Record) (ans driver.Answer, known bool) {
	ans.Record = rec
	switch rec.State {
	case driver.StateSucceeded, driver.StateFailed:
		ans.Outcome = driver.Duplicate
	case driver.StateUncertain:
		ans.Outcome = driver.Uncertain
	case driver.StateInProgress:
		if rec.Remaining <= 0 {
			return ans, false
		}
		ans.Outcome = driver.InFlight
	default:
		return ans, false
	}
	if rec.Fingerprint.Conflicts(r.Fingerprint) {
		ans.Outcome = driver.Mismatch
	}
	return ans, true
}

// peek answers claims while no claim is granted: from the record of the key if there is one, and
// otherwise with the error why. It writes nothing. It also leaves a claim in progress as it is,
// because an earlier send of the caller may have made it.
func (e *Engine) peek(ctx context.Context, reqs []driver.ClaimRequest, why error) []driver.Answer {
	ids := make([]driver.ID, len(reqs))
	for i := range reqs {
		ids[i] = reqs[i].ID
	}
	answers := e.Lookup(ctx, ids)
	for i := range answers {
		if err := e.CheckClaim(&reqs[i]); err != nil {
			answers[i] = driver.Answer{Err: err}
			continue
		}
		if answers[i].Err != nil {
			continue
		}
		ans, known := recorded(&reqs[i], answers[i].Record)
		if !known || answers[i].Record.State == driver.StateInProgress {
			ans = driver.Answer{Err: wire.Wrap("claim", why)}
		}
		answers[i] = ans
	}
	return answers
}

// giveBack releases claims that were won and are not granted. A claim that it cannot release lapses
// with its lease.
func (x *Exchange) giveBack(ctx context.Context, which []int) {
	if len(which) == 0 {
		return
	}
	changes := make([]driver.Finish, len(which))
	for n, i := range which {
		changes[n] = driver.Finish{ID: x.Reqs[i].ID, Token: x.Reqs[i].Token,
			State: driver.StateReleased, NotAttempted: !x.Asks, Hold: x.Reqs[i].Hold}
	}
	// The caller may be gone; its claims are still held.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer cancel()
	x.FinishClaim(ctx, changes, nil)
}
