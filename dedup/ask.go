package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/pause"

	"github.com/onceward/onceward/dedup/internal/coalesce"
)

const (
	// askTimes bounds how often one item is sent before its caller is told Unknown.
	askTimes  = 4
	askBase   = 10 * time.Millisecond
	askAtMost = 250 * time.Millisecond
)

// claimResult is what became of one claim request.
type claimResult struct {
	answer *driver.Answer // points into what the store returned
	// validUntil is when an Acquired claim stops being ours, by Deduper.clock.
	validUntil time.Duration
	// open is true if the store may hold a claim under our token that no caller has got.
	open bool
	// renewal is the error of the renewal of a claim of ours before its use.
	renewal error
}

// askAgain continues from ans, the answer to the one request of a single call, and replaces
// it. It returns until when the claim is valid, if the new answer grants one.
func (d *Deduper) askAgain(ctx context.Context, first time.Duration, req []driver.ClaimRequest,
	ans *driver.Answer) (validUntil time.Duration) {
	a := d.askOn(ctx, first, req, []driver.Answer{*ans},
		func(ctx context.Context, req []driver.ClaimRequest) []driver.Answer {
			return []driver.Answer{d.askClaim(ctx, (*[1]driver.ClaimRequest)(req))}
		})[0]
	*ans = *a.answer
	return a.validUntil
}

// plain reports whether an answer to a first send is final, provided that it came in time.
// Nearly all answers are final, and then nothing is allocated for another send.
func plain(a *driver.Answer) bool {
	return a.Err == nil && !a.Mine && a.Outcome != Unknown && a.Outcome <= Uncertain
}

// askOn continues from the answers of the first send, which began at first. It sends the
// requests again until each has an answer, has been asked askTimes, or ctx ends. Items
// without an answer are sent again with the same token: the store may have executed them,
// and then answers Mine.
//
// A claim counts from before its first send. A reply that takes longer than the lease
// says nothing about now: a server that was frozen, and replaced meanwhile, still
// executes and answers what was waiting in its socket when it wakes up.
func (d *Deduper) askOn(ctx context.Context, first time.Duration, reqs []driver.ClaimRequest,
	answers []driver.Answer,
	send func(context.Context, []driver.ClaimRequest) []driver.Answer) []claimResult {
	out := make([]claimResult, len(reqs))
	todo := d.noteAll(ctx, reqs, out, answers, nil)
	for try := 0; len(todo) > 0 && try+1 < askTimes &&
		pause.Sleep(ctx, pause.Jitter(askBase, askAtMost, try)) == nil; try++ {
		batch := make([]driver.ClaimRequest, len(todo))
		for n, i := range todo {
			batch[n] = reqs[i]
		}
		todo = d.noteAll(ctx, reqs, out, send(ctx, batch), todo)
	}
	d.validate(ctx, first, reqs, out)
	return out
}

// noteAll notes the answers of one send: those of the items that at lists, or of all items if at
// is nil. It returns the items worth asking for again.
func (d *Deduper) noteAll(ctx context.Context, reqs []driver.ClaimRequest, out []claimResult,
	answers []driver.Answer, at []int) (again []int) {
	for n := range answers {
		i := n
		if at != nil {
			i = at[n]
		}
		err := out[i].note(&answers[n])
		if err == nil {
			continue
		}
		if ctx.Err() == nil { // otherwise it is not the store's fault
			d.storeError(reqs[i].ID, err)
		}
		if passes(err) {
			again = append(again, i)
		}
	}
	return again
}

// note takes the answer of one send. Its error says why the item still has no answer.
func (a *claimResult) note(ans *driver.Answer) error {
	if ans.Err == nil && (ans.Outcome == Unknown || ans.Outcome > Uncertain) {
		ans = &driver.Answer{Err: fmt.Errorf("%w: store answered neither an outcome nor an error",
			ErrUnknown)}
	}
	a.answer = ans
	if ans.Err == nil {
		a.open = false
		return nil
	}
	var left *coalesce.AbandonedError
	switch {
	case notSent(ans.Err): // an earlier send may still have been executed
	case !errors.As(ans.Err, &left):
		a.open = mayHaveExecuted(ans.Err)
	case !left.Queued:
		a.open = false // the coalescer still has the call, and releases a claim that it wins
	}
	return ans.Err
}

// validate renews the claims that an earlier send had won without our knowing, before they
// are used. It turns Acquired into Unknown where the answer came too late, and gives back
// every claim that we may hold and that no caller got.
func (d *Deduper) validate(ctx context.Context, first time.Duration, reqs []driver.ClaimRequest,
	out []claimResult) {
	until := d.validFrom(first)
	var mine []int
	for i := range out {
		out[i].validUntil = until
		if out[i].answer.Mine && out[i].answer.Outcome == Acquired && d.clock() < until {
			mine = append(mine, i)
		}
	}
	d.renewMine(ctx, reqs, out, mine)
	// Read the clock after the renewal: meanwhile all claims came closer to their end, also those
	// that were not renewed.
	now := d.clock()
	var back []driver.Finish
	for i := range out {
		a := &out[i]
		if a.answer.Outcome == Acquired && now >= a.validUntil {
			a.answer = &driver.Answer{Err: fmt.Errorf("dedup: claim was answered after its lease of %v",
				d.cfg.LeaseTTL)}
			a.open = true
		}
		if a.open && a.answer.Err != nil {
			back = append(back, d.releaseChange(&reqs[i]))
		}
	}
	d.giveBack(back, false)
}

// renewMine renews claims whose first reply was lost: part of their lease has passed.
// The network that lost the reply may lose the renewal too.
func (d *Deduper) renewMine(ctx context.Context, reqs []driver.ClaimRequest, out []claimResult,
	mine []int) {
	for try := 0; len(mine) > 0; try++ {
		mine = d.renewMineOnce(ctx, reqs, out, mine)
		if len(mine) == 0 || try+1 == askTimes ||
			pause.Sleep(ctx, pause.Jitter(askBase, askAtMost, try)) != nil {
			break
		}
	}
	for _, i := range mine {
		out[i].answer, out[i].open = &driver.Answer{Err: out[i].renewal}, true
	}
}

// renewMineOnce returns what has to be renewed again.
func (d *Deduper) renewMineOnce(ctx context.Context, reqs []driver.ClaimRequest, out []claimResult,
	mine []int) (again []int) {
	renewals := make([]driver.Renewal, len(mine))
	for n, i := range mine {
		renewals[n] = driver.Renewal{ID: reqs[i].ID, Token: reqs[i].Token, Lease: d.cfg.LeaseTTL,
			Hold: d.cfg.Hold, Window: reqs[i].Window}
	}
	sent := d.clock()
	for n, ans := range inBatches(ctx, d.cfg.StoreTimeout, renewals, d.store.Renew) {
		a := &out[mine[n]]
		switch {
		case ans.Err != nil:
			if ctx.Err() == nil {
				d.storeError(renewals[n].ID, ans.Err)
			}
			a.renewal = ans.Err
			again = append(again, mine[n])
		case ans.Held:
			a.validUntil = d.validFrom(sent)
		default:
			// Another owner took the key over between the claim and its renewal. The answer must
			// not be Unknown: then FailOpen would run the effect while another owner is known to
			// exist.
			a.answer = &driver.Answer{Outcome: InFlight, Record: ans.Record}
		}
	}
	return again
}
