package deduptest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// eachClaim bends every answer of Claim.
func eachClaim(b *broken, bend func(req driver.ClaimRequest, a *driver.Answer)) {
	b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
		answers := b.Store.Claim(ctx, reqs)
		for i := range answers {
			bend(reqs[i], &answers[i])
		}
		return answers
	}
}

// eachRequest bends every request of Claim.
func eachRequest(b *broken, bend func(req *driver.ClaimRequest)) {
	b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
		reqs = append([]driver.ClaimRequest(nil), reqs...)
		for i := range reqs {
			bend(&reqs[i])
		}
		return b.Store.Claim(ctx, reqs)
	}
}

var claimMutants = []mutant{
	{"never acquires", func(b *broken) {
		eachClaim(b, func(_ driver.ClaimRequest, a *driver.Answer) {
			if a.Outcome == dedup.Acquired {
				a.Outcome = dedup.InFlight
			}
		})
	}, []string{"claim/fresh", "batch/mixed", "concurrent/one_winner"}},

	{"own claim not recognised", func(b *broken) {
		eachClaim(b, func(_ driver.ClaimRequest, a *driver.Answer) {
			if a.Mine {
				a.Mine, a.Outcome = false, dedup.InFlight
			}
		})
	}, []string{"claim/mine_after_lost_reply", "claim/mine_after_lapse", "batch/mixed",
		"concurrent/random_walk"}},

	{"own claim not told from a new one", func(b *broken) {
		eachClaim(b, func(_ driver.ClaimRequest, a *driver.Answer) { a.Mine = false })
	}, []string{"claim/mine_after_lost_reply"}},

	{"claim sent again extends the lease", func(b *broken) {
		eachClaim(b, func(req driver.ClaimRequest, a *driver.Answer) {
			if a.Mine {
				renewal := driver.Renewal{ID: req.ID, Token: req.Token, Lease: req.Lease,
					Hold: req.Hold}
				*a = b.Store.Renew(context.Background(), []driver.Renewal{renewal})[0]
				a.Outcome, a.Mine, a.Held = dedup.Acquired, true, false
			}
		})
	}, []string{"claim/mine_after_lost_reply", "claim/mine_after_lapse"}},

	{"takeover of a live lease", func(b *broken) {
		var o owners
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := b.Store.Claim(ctx, reqs)
			for i := range answers {
				if token, ok := o.of(reqs[i].ID); ok && answers[i].Outcome == dedup.InFlight {
					change := driver.Finish{ID: reqs[i].ID, Token: token,
						State: driver.StateReleased,
						Hold:  long}
					b.Store.Finish(ctx, []driver.Finish{change})
					answers[i] = b.Store.Claim(ctx, reqs[i:i+1])[0]
				}
			}
			return o.note(reqs, answers)
		}
	}, []string{"claim/in_flight", "time/live_claim_is_kept"}},

	{"window used as lease", func(b *broken) {
		eachRequest(b, func(req *driver.ClaimRequest) { req.Lease += req.Hold })
	}, []string{"time/window_is_no_lease", "time/takeover", "claim/mine_after_lapse",
		"renew/never_creates"}},

	{"claim forgotten with its lease", func(b *broken) {
		eachRequest(b, func(req *driver.ClaimRequest) { req.Hold = 0 })
	}, []string{"time/takeover", "renew/own_lapsed_claim"}},

	{"fence does not grow on takeover", func(b *broken) {
		var first sameFence
		eachClaim(b, func(req driver.ClaimRequest, a *driver.Answer) { first.keep(req.ID, a) })
	}, []string{"time/takeover", "time/released", "time/hold_expiry", "time/window_expiry",
		"forget/fence", "concurrent/one_owner_at_a_time"}},

	{"fence starts again when forgotten", func(b *broken) {
		eachClaim(b, func(_ driver.ClaimRequest, a *driver.Answer) {
			a.Record.Fence = uint64(max(a.Record.Attempt, 0))
		})
	}, []string{"time/hold_expiry", "time/window_expiry", "forget/fence"}},

	{"attempt counted when released", func(b *broken) {
		released := map[driver.ID]int{}
		mu := make(chan struct{}, 1)
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			answers := b.Store.Finish(ctx, changes)
			mu <- struct{}{}
			defer func() { <-mu }()
			for i, a := range answers {
				if a.Held && changes[i].State == driver.StateReleased {
					released[changes[i].ID]++
				}
			}
			return answers
		}
		eachClaim(b, func(req driver.ClaimRequest, a *driver.Answer) {
			mu <- struct{}{}
			defer func() { <-mu }()
			if a.Outcome == dedup.Acquired {
				a.Record.Attempt = 1 + released[req.ID]
			}
		})
	}, []string{"time/takeover", "renew/extends"}},

	{"attempt lost on release", func(b *broken) {
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			answers := b.Store.Finish(ctx, changes)
			for i, a := range answers {
				if a.Held && changes[i].State == driver.StateReleased {
					b.Store.Forget(ctx, []driver.ID{changes[i].ID}, long)
				}
			}
			return answers
		}
	}, []string{"time/released", "finish/owner", "finish/sent_again"}},

	{"fingerprint ignored", func(b *broken) {
		eachRequest(b, func(req *driver.ClaimRequest) { req.Fingerprint = driver.Fingerprint{} })
	}, []string{"mismatch/every_state", "batch/mixed"}},

	{"fingerprint ignored once finished", func(b *broken) {
		eachClaim(b, func(_ driver.ClaimRequest, a *driver.Answer) {
			if a.Outcome == dedup.Mismatch && a.Record.State == driver.StateSucceeded {
				a.Outcome = dedup.Duplicate
			}
		})
	}, []string{"mismatch/every_state"}},

	{"any other fingerprint is a mismatch", func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := make([]driver.Answer, len(reqs))
			for i := range reqs {
				rec := b.state(ctx, reqs[i].ID)
				if rec.State != driver.StateAbsent && rec.Fingerprint != reqs[i].Fingerprint {
					answers[i] = driver.Answer{Outcome: dedup.Mismatch, Record: rec}
					continue
				}
				answers[i] = b.Store.Claim(ctx, reqs[i:i+1])[0]
			}
			return answers
		}
	}, []string{"mismatch/incomparable"}},

	{"look, then claim", func(b *broken) {
		// Reads first and writes whatever it thinks is right: the race of SELECT and
		// INSERT without a unique index.
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			free := make([]bool, len(reqs))
			for i := range reqs {
				free[i] = b.state(ctx, reqs[i].ID).State == driver.StateAbsent
			}
			<-time.After(time.Nanosecond) // in fake time: when all workers have looked
			answers := b.Store.Claim(ctx, reqs)
			for i := range answers {
				if free[i] && answers[i].Outcome == dedup.InFlight {
					answers[i].Outcome = dedup.Acquired
				}
			}
			return answers
		}
	}, []string{"concurrent/one_winner"}},

	{"finished keys claimed again", func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := b.Store.Claim(ctx, reqs)
			for i := range answers {
				if answers[i].Outcome == dedup.Duplicate {
					b.Store.Forget(ctx, []driver.ID{reqs[i].ID}, 0)
					answers[i] = b.Store.Claim(ctx, reqs[i:i+1])[0]
				}
			}
			return answers
		}
	}, []string{"claim/duplicate", "claim/stored_failure", "time/window_is_no_lease"}},

	{"a claim in flight is given to all", func(b *broken) {
		eachClaim(b, func(_ driver.ClaimRequest, a *driver.Answer) {
			if a.Outcome == dedup.InFlight {
				a.Outcome = dedup.Acquired
			}
		})
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			<-time.After(time.Nanosecond) // in fake time: when all workers have claimed
			return b.Store.Finish(ctx, changes)
		}
	}, []string{"claim/in_flight", "concurrent/one_winner", "concurrent/one_owner_at_a_time"}},

	{"mine told to strangers", func(b *broken) {
		eachClaim(b, func(_ driver.ClaimRequest, a *driver.Answer) {
			if a.Outcome == dedup.InFlight {
				a.Outcome, a.Mine = dedup.Acquired, true
			}
		})
	}, []string{"claim/in_flight", "time/live_claim_is_kept"}},

	{"remaining not told", func(b *broken) {
		eachClaim(b, func(_ driver.ClaimRequest, a *driver.Answer) { a.Record.Remaining = 0 })
	}, []string{"claim/in_flight", "claim/duplicate", "claim/stored_failure"}},

	{"one call in fifty lets a second owner in", func(b *broken) {
		var calls atomic.Int64
		eachClaim(b, func(_ driver.ClaimRequest, a *driver.Answer) {
			if a.Outcome == dedup.InFlight && calls.Add(1)%50 == 0 {
				a.Outcome = dedup.Acquired
			}
		})
	}, []string{"concurrent/one_winner"}},

	{"claims are never forgotten", func(b *broken) {
		eachRequest(b, func(req *driver.ClaimRequest) { req.Hold += 100 * time.Hour })
	}, []string{"time/hold_expiry", "landed/absent"}},
}
