package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// askTimes bounds how often one item is sent before its caller is told Unknown.
	askTimes  = 4
	askBase   = 10 * time.Millisecond
	askAtMost = 250 * time.Millisecond
)

// asked is what became of one claim request.
type asked struct {
	answer Answer
	// validUntil is when an Acquired claim stops being ours, on our monotonic clock.
	validUntil time.Time
}

// ask sends the requests until each is learnt, asked askTimes, or ctx ends. Items that
// could not be learnt are sent again with the same token: the store may have executed
// them, and then answers Mine.
//
// A claim counts from before its first send. A reply that takes longer than the lease
// says nothing about now: a server that was frozen, and replaced meanwhile, still
// executes and answers what was waiting in its socket when it wakes up.
func (d *Deduper) ask(ctx context.Context, reqs []ClaimRequest, send func(context.Context, []ClaimRequest) []Answer) []asked {
	first := time.Now()
	out := make([]asked, len(reqs))
	todo := make([]int, len(reqs))
	for i := range todo {
		todo[i] = i
	}
	batch := reqs
	for try := 0; ; try++ {
		answers := send(ctx, batch)
		next := todo[:0:0]
		for n, i := range todo {
			out[i].answer = answers[n]
			if err := answers[n].Err; err != nil {
				d.storeError(reqs[i].ID, err)
				if Retryable(err) {
					next = append(next, i)
				}
			}
		}
		todo = next
		if len(todo) == 0 || try+1 == askTimes || sleep(ctx, jitter(askBase, askAtMost, try)) != nil {
			break
		}
		batch = make([]ClaimRequest, len(todo))
		for n, i := range todo {
			batch[n] = reqs[i]
		}
	}
	d.validate(ctx, first, reqs, out)
	return out
}

// validate turns Acquired into Unknown where the answer came too late, and renews what
// was found to be ours by an earlier send before it is used.
func (d *Deduper) validate(ctx context.Context, first time.Time, reqs []ClaimRequest, out []asked) {
	usable := d.cfg.LeaseTTL - margin(d.cfg.LeaseTTL)
	until := first.Add(usable)
	var late, mine []int
	for i := range out {
		if out[i].answer.Outcome != Acquired {
			continue
		}
		out[i].validUntil = until
		switch {
		case !time.Now().Before(until):
			late = append(late, i)
		case out[i].answer.Mine:
			mine = append(mine, i)
		}
	}
	d.renewMine(ctx, reqs, out, mine)
	d.refuseLate(reqs, out, late)
}

// renewMine extends claims that a lost reply had hidden: part of their lease is gone.
func (d *Deduper) renewMine(ctx context.Context, reqs []ClaimRequest, out []asked, mine []int) {
	if len(mine) == 0 {
		return
	}
	changes := make([]Change, len(mine))
	for n, i := range mine {
		changes[n] = Change{ID: reqs[i].ID, Token: reqs[i].Token, Lease: d.cfg.LeaseTTL, Hold: d.cfg.Hold}
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StoreTimeout)
	defer cancel()
	answers := answered(d.store.Renew(ctx, changes), len(changes))
	until := sent.Add(d.cfg.LeaseTTL - margin(d.cfg.LeaseTTL))
	for n, i := range mine {
		switch {
		case answers[n].Held && time.Now().Before(until):
			out[i].validUntil = until
		case answers[n].Err != nil:
			out[i].answer = Answer{Err: answers[n].Err}
		default:
			out[i].answer = Answer{Err: errors.New("dedup: own claim was taken over before it could be renewed")}
		}
	}
}

// refuseLate gives back claims whose answer came after their own lease.
func (d *Deduper) refuseLate(reqs []ClaimRequest, out []asked, late []int) {
	if len(late) == 0 {
		return
	}
	changes := make([]Change, len(late))
	for n, i := range late {
		changes[n] = d.releaseChange(reqs[i], out[i].answer)
		out[i].answer = Answer{Err: fmt.Errorf("dedup: claim was answered after its lease of %v", d.cfg.LeaseTTL)}
	}
	d.finishUnheard(changes)
}

// releaseOrphan gives back a claim whose caller was cancelled while it was asked for.
func (d *Deduper) releaseOrphan(req ClaimRequest, ans Answer) {
	if ans.Outcome == Acquired {
		d.finishUnheard([]Change{d.releaseChange(req, ans)})
	}
}

func (d *Deduper) releaseChange(req ClaimRequest, ans Answer) Change {
	return Change{
		ID: req.ID, Token: req.Token, Fence: ans.Record.Fence, Attempt: ans.Record.Attempt,
		State: StateReleased, Hold: d.cfg.Hold,
	}
}

// finishUnheard releases claims nobody works under. Failure is harmless: they lapse.
func (d *Deduper) finishUnheard(changes []Change) {
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.StoreTimeout)
	defer cancel()
	for i, ans := range answered(d.store.Finish(ctx, changes), len(changes)) {
		if ans.Err != nil {
			d.storeError(changes[i].ID, ans.Err)
		}
	}
}

// sendClaims is the direct way of a batch to the store, under its timeout.
func (d *Deduper) sendClaims(ctx context.Context, reqs []ClaimRequest) []Answer {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StoreTimeout)
	defer cancel()
	return answered(d.store.Claim(ctx, reqs), len(reqs))
}

// sendClaim is the way of a single call, which shares a batch with others.
func (d *Deduper) sendClaim(ctx context.Context, reqs []ClaimRequest) []Answer {
	return []Answer{d.claims.do(ctx, reqs[0])}
}
