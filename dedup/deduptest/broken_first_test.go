package deduptest

import (
	"context"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// firsts makes a store drop OnlyNew from the requests for which when returns true.
func firsts(when func(req driver.ClaimRequest, rec dedup.Record) bool) func(*broken) {
	return func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := make([]driver.Answer, len(reqs))
			for i, req := range reqs {
				if req.OnlyNew && when(req, b.state(ctx, req.ID)) {
					req.OnlyNew = false
				}
				answers[i] = b.Store.Claim(ctx, []driver.ClaimRequest{req})[0]
			}
			return answers
		}
	}
}

// bendsLeft bends the answers to requests with OnlyNew that leave a free key alone.
func bendsLeft(bend func(b *broken, ctx context.Context, req driver.ClaimRequest,
	a *driver.Answer)) func(*broken) {
	return func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := b.Store.Claim(ctx, reqs)
			for i := range answers {
				if a := &answers[i]; reqs[i].OnlyNew && a.Outcome == dedup.InFlight &&
					a.Record.Remaining <= 0 {
					bend(b, ctx, reqs[i], a)
				}
			}
			return answers
		}
	}
}

var firstMutants = []mutant{
	{"first claims are like others", eachRequestOf(func(req *driver.ClaimRequest) {
		req.OnlyNew = false
	}),
		[]string{"first/left", "first/other_states", "concurrent/random_walk"}},

	{"every claim is a first one", eachRequestOf(func(req *driver.ClaimRequest) {
		req.OnlyNew = true
	}),
		[]string{"time/released", "concurrent/random_walk"}},

	{"a first claim gets a lapsed key", firsts(func(_ driver.ClaimRequest, rec dedup.Record) bool {
		return rec.State == driver.StateInProgress && rec.Remaining <= 0
	}), []string{"first/left"}},

	{"a first claim gets a released key", firsts(func(_ driver.ClaimRequest, rec dedup.Record) bool {
		return rec.State == driver.StateReleased
	}), []string{"first/left"}},

	{"a first claim takes over", firsts(func(req driver.ClaimRequest, _ dedup.Record) bool {
		return req.TakeOverOlderGeneration
	}), []string{"first/left"}},

	{"a first claim takes what is uncertain",
		firsts(func(req driver.ClaimRequest, _ dedup.Record) bool {
			return req.TakeUncertain
		}), []string{"first/other_states"}},

	{"a first claim is refused what was never begun", func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := make([]driver.Answer, len(reqs))
			for i, req := range reqs {
				if rec := b.state(ctx, req.ID); req.OnlyNew && rec.State == driver.StateReleased &&
					rec.Attempt == 0 {
					rec.Remaining = 0
					answers[i] = driver.Answer{Outcome: dedup.InFlight, Record: rec}
					continue
				}
				answers[i] = b.Store.Claim(ctx, []driver.ClaimRequest{req})[0]
			}
			return answers
		}
	}, []string{"first/unclaimed"}},

	{"a first claim counts what it leaves",
		bendsLeft(func(b *broken, ctx context.Context, req driver.ClaimRequest, _ *driver.Answer) {
			req.OnlyNew = false
			b.Store.Claim(ctx, []driver.ClaimRequest{req})
			b.Store.Finish(ctx, []driver.Finish{{ID: req.ID, Token: req.Token,
				State: driver.StateReleased, Hold: long, Window: long}})
		}), []string{"first/left", "concurrent/random_walk"}},

	{"what is left looks busy",
		bendsLeft(func(_ *broken, _ context.Context, _ driver.ClaimRequest, a *driver.Answer) {
			a.Record.Remaining = long
		}), []string{"first/left", "concurrent/random_walk"}},

	{"first claims win together", func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := b.Store.Claim(ctx, reqs)
			for i, a := range answers {
				if reqs[i].OnlyNew && a.Outcome == dedup.InFlight && a.Record.Attempt == 1 &&
					a.Record.Remaining > 0 {
					answers[i].Outcome = dedup.Acquired
				}
			}
			return answers
		}
	}, []string{"first/one_winner"}},
}
