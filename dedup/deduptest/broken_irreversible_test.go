package deduptest

import (
	"bytes"
	"context"
	"sync"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// eachRenewal bends every renewal on its way to Renew.
func eachRenewal(bend func(*driver.Renewal)) func(*broken) {
	return func(b *broken) {
		b.renew = func(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
			renewals = append([]driver.Renewal(nil), renewals...)
			for i := range renewals {
				bend(&renewals[i])
			}
			return b.Store.Renew(ctx, renewals)
		}
	}
}

// stepsOnTheSide keeps steps outside of the right store. keep returns the steps to keep, and show
// the steps to show in a record.
func stepsOnTheSide(keep func(old, given []byte) []byte,
	show func(rec dedup.Record, kept []byte) []byte) func(*broken) {
	return func(b *broken) {
		var mu sync.Mutex
		kept := map[driver.ID][]byte{}
		bent := func(id driver.ID, a *driver.Answer) {
			mu.Lock()
			defer mu.Unlock()
			if s, ok := kept[id]; ok {
				a.Record.Steps = show(a.Record, s)
			}
		}
		b.renew = func(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
			answers := b.Store.Renew(ctx, renewals)
			for i, c := range renewals {
				if answers[i].Held {
					mu.Lock()
					kept[c.ID] = keep(kept[c.ID], c.Steps)
					mu.Unlock()
				}
				bent(c.ID, &answers[i])
			}
			return answers
		}
		b.lookup = func(ctx context.Context, ids []driver.ID) []driver.Answer {
			answers := b.Store.Lookup(ctx, ids)
			for i := range answers {
				bent(ids[i], &answers[i])
			}
			return answers
		}
		eachClaim(b, func(req driver.ClaimRequest, a *driver.Answer) { bent(req.ID, a) })
	}
}

func keepLast(_, given []byte) []byte { return given }

func keepLonger(old, given []byte) []byte {
	if len(given) < len(old) {
		return old
	}
	return given
}

func showSame(rec dedup.Record, kept []byte) []byte {
	if rec.Steps == nil {
		return nil
	}
	return kept
}

var dangerMutants = []mutant{
	{"danger not kept", eachRenewal(func(c *driver.Renewal) {
		c.Irreversible = false
	}), []string{"danger/kept", "uncertain/take"}},

	{"danger dropped on lapse", func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			reqs = append([]driver.ClaimRequest(nil), reqs...)
			for i := range reqs {
				reqs[i].TakeUncertain = true
			}
			return b.Store.Claim(ctx, reqs)
		}
	}, []string{"danger/kept", "danger/life", "uncertain/take", "concurrent/random_walk"}},

	{"danger released", eachChange(func(c *driver.Finish) {
		c.NotStarted = c.State == driver.StateReleased
	}),
		[]string{"danger/kept", "danger/life", "uncertain/take"}},

	{"danger not withdrawn", eachChange(func(c *driver.Finish) {
		c.NotStarted = false
	}), []string{"danger/ends"}},

	{"danger withdrawn by a plain renewal", func(b *broken) {
		b.renew = func(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
			answers := make([]driver.Answer, len(renewals))
			for i, c := range renewals {
				rec := b.state(ctx, c.ID)
				if rec.Irreversible && !c.Irreversible && b.Store.Renew(ctx,
					renewals[i:i+1])[0].Held {
					b.Store.Finish(ctx, []driver.Finish{{ID: c.ID, Token: c.Token, Fence: c.Fence,
						State: driver.StateReleased, Hold: c.Hold, NotStarted: true}})
					b.Store.Claim(ctx, []driver.ClaimRequest{{ID: c.ID, Token: c.Token,
						Lease: c.Lease, Hold: c.Hold}})
				}
				answers[i] = b.Store.Renew(ctx, renewals[i:i+1])[0]
			}
			return answers
		}
	}, []string{"danger/kept"}},

	{"what has ended is dangerous", eachRecord(func(r *dedup.Record) {
		r.Irreversible = r.Irreversible || r.State == driver.StateSucceeded ||
			r.State == driver.StateFailed
	}), []string{"danger/ends"}},

	{"danger lives as long as its lease", eachRenewal(func(c *driver.Renewal) {
		c.Window = 0
	}), []string{"danger/life"}},
	{"danger is never forgotten", eachRenewal(func(c *driver.Renewal) {
		c.Window += 100 * long
	}), []string{"danger/life"}},

	{"danger and steps written without owner check", func(b *broken) {
		bend := asOwner(b, renewalOf, func(r driver.Renewal) bool {
			return r.Irreversible || r.Steps != nil
		})
		b.renew = func(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
			answers := b.Store.Renew(ctx, renewals)
			b.Store.Renew(ctx, bend(renewals))
			return answers
		}
	}, []string{"danger/late_owner"}},

	{"an uncertain key is given to all who want to find out", func(b *broken) {
		eachClaim(b, func(req driver.ClaimRequest, a *driver.Answer) {
			if req.TakeUncertain && a.Outcome == dedup.InFlight && a.Record.Irreversible {
				a.Outcome = dedup.Acquired
			}
		})
	}, []string{"uncertain/take", "uncertain/one_taker"}},

	{"nobody may find out", eachRequestOf(func(req *driver.ClaimRequest) {
		req.TakeUncertain = false
	}),
		[]string{"uncertain/take", "uncertain/one_taker", "steps/outlive"}},

	{"finding out withdraws danger", func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := b.Store.Claim(ctx, reqs)
			for i, a := range answers {
				if a.Outcome != dedup.Acquired || !a.Record.Irreversible || a.Mine {
					continue
				}
				c := driver.Finish{ID: reqs[i].ID, Token: reqs[i].Token,
					State: driver.StateReleased,
					Hold:  long, NotStarted: true}
				b.Store.Finish(ctx, []driver.Finish{c})
				answers[i].Record = b.Store.Claim(ctx, reqs[i:i+1])[0].Record
				answers[i].Record.Irreversible = true // which hides the release
			}
			return answers
		}
	}, []string{"uncertain/take"}},

	{"who wants to find out gets in everywhere", func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := b.Store.Claim(ctx, reqs)
			for i, a := range answers {
				if reqs[i].TakeUncertain && a.Outcome == dedup.Duplicate {
					b.Store.Forget(ctx, []driver.ID{reqs[i].ID}, 0)
					answers[i] = b.Store.Claim(ctx, reqs[i:i+1])[0]
				}
			}
			return answers
		}
	}, []string{"uncertain/take_other"}},

	{"landed refused when uncertain", refuseApplied(driver.StateUncertain),
		[]string{"uncertain/decided"}},

	{"steps not kept", eachRenewal(func(c *driver.Renewal) {
		c.Steps = nil
	}), []string{"steps/kept", "steps/outlive", "steps/not_shared"}},
	{"steps cut", eachRenewal(func(c *driver.Renewal) {
		c.Steps = c.Steps[:min(len(c.Steps), 1<<16-1)]
	}), []string{"steps/kept"}},
	{"steps that came late count", stepsOnTheSide(func(old, given []byte) []byte {
		if given == nil {
			return old
		}
		return bytes.Clone(given)
	}, showSame), []string{"steps/kept", "concurrent/random_walk"}},
	{"steps cleared by a plain renewal", stepsOnTheSide(keepLast, showSame),
		[]string{"steps/kept"}},
	{"steps shared", stepsOnTheSide(keepLonger, showSame), []string{"steps/not_shared"}},
	{"steps of what has ended",
		stepsOnTheSide(keepLonger, func(_ dedup.Record, kept []byte) []byte { return kept }),
		[]string{"steps/outlive"}},
	{"steps lost on release", func(b *broken) {
		eachClaim(b, func(_ driver.ClaimRequest, a *driver.Answer) {
			if a.Record.Attempt > 1 {
				a.Record.Steps = nil
			}
		})
	}, []string{"steps/outlive"}},
}

// eachRequestOf is eachRequest for a table.
func eachRequestOf(bend func(*driver.ClaimRequest)) func(*broken) {
	return func(b *broken) { eachRequest(b, bend) }
}
