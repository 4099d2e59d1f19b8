package deduptest

import (
	"context"
	"slices"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// asOwner is a store that does not compare the owner: it sends renewals or ends under the owner's
// token. It changes only the items that pick selects, where attempt points.
func asOwner[T any](b *broken, attempt func(*T) (driver.ID, *driver.Token, *uint64),
	pick func(T) bool) func([]T) []T {
	var o owners
	b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
		return o.note(reqs, b.Store.Claim(ctx, reqs))
	}
	return func(items []T) []T {
		items = slices.Clone(items)
		for i := range items {
			id, token, fence := attempt(&items[i])
			if owner, ok := o.of(id); ok && pick(items[i]) {
				*token, *fence = owner, 0
			}
		}
		return items
	}
}

func endOf(c *driver.Finish) (id driver.ID, token *driver.Token, fence *uint64) {
	return c.ID, &c.Token, &c.Fence
}

func renewalOf(r *driver.Renewal) (id driver.ID, token *driver.Token, fence *uint64) {
	return r.ID, &r.Token, &r.Fence
}

// endsUncompared makes Finish skip the owner compare for one state.
func endsUncompared(state driver.State) func(*broken) {
	return func(b *broken) {
		bend := asOwner(b, endOf, func(c driver.Finish) bool { return c.State == state })
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			return b.Store.Finish(ctx, bend(changes))
		}
	}
}

// eachFinish bends every answer of Finish. before is the record from before the call.
func eachFinish(b *broken, bend func(ctx context.Context, c driver.Finish, before dedup.Record,
	a *driver.Answer)) {
	b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
		answers := make([]driver.Answer, len(changes))
		for i := range changes {
			before := b.state(ctx, changes[i].ID)
			answers[i] = b.Store.Finish(ctx, changes[i:i+1])[0]
			bend(ctx, changes[i], before, &answers[i])
		}
		return answers
	}
}

// refuseApplied makes Finish ignore EffectApplied for keys in the given state.
func refuseApplied(state driver.State) func(*broken) {
	return func(b *broken) {
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			changes = append([]driver.Finish(nil), changes...)
			for i := range changes {
				if b.state(ctx, changes[i].ID).State == state {
					changes[i].EffectApplied = false
				}
			}
			return b.Store.Finish(ctx, changes)
		}
	}
}

var finishMutants = []mutant{
	{"owner not compared on complete", endsUncompared(driver.StateSucceeded),
		[]string{"finish/late_owner"}},
	{"owner not compared on fail", endsUncompared(driver.StateFailed),
		[]string{"finish/late_owner"}},
	{"owner not compared on release", endsUncompared(driver.StateReleased),
		[]string{"finish/late_owner", "finish/sent_again"}},

	{"fence not compared on end", func(b *broken) {
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			changes = append([]driver.Finish(nil), changes...)
			for i := range changes {
				changes[i].Fence = 0
			}
			return b.Store.Finish(ctx, changes)
		}
	}, []string{"finish/other_claim"}},

	{"fence not compared on renew", eachRenewal(func(c *driver.Renewal) {
		c.Fence = 0
	}), []string{"finish/other_claim"}},

	{"writes without the unknown", func(b *broken) {
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			changes = append([]driver.Finish(nil), changes...)
			for i := range changes {
				changes[i].With = nil
			}
			return b.Store.Finish(ctx, changes)
		}
	}, []string{"finish/with_the_unknown"}},

	{"owner not compared on renew", func(b *broken) {
		bend := asOwner(b, renewalOf, func(driver.Renewal) bool { return true })
		b.renew = func(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
			return b.Store.Renew(ctx, bend(renewals))
		}
	}, []string{"renew/never_creates", "finish/late_owner"}},

	{"renew creates", func(b *broken) {
		b.renew = func(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
			answers := b.Store.Renew(ctx, renewals)
			for i, c := range renewals {
				if answers[i].Record.State == driver.StateAbsent && answers[i].Err == nil {
					req := driver.ClaimRequest{ID: c.ID, Token: c.Token, Lease: c.Lease,
						Hold: c.Hold}
					answers[i] = b.Store.Claim(ctx, []driver.ClaimRequest{req})[0]
					answers[i].Held = true
				}
			}
			return answers
		}
	}, []string{"renew/never_creates", "forget/older_owner"}},

	{"renew revives what was released", func(b *broken) {
		b.renew = func(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
			answers := b.Store.Renew(ctx, renewals)
			for i, c := range renewals {
				if answers[i].Record.State == driver.StateReleased {
					req := driver.ClaimRequest{ID: c.ID, Token: c.Token, Lease: c.Lease,
						Hold: c.Hold}
					answers[i] = b.Store.Claim(ctx, []driver.ClaimRequest{req})[0]
				}
			}
			return answers
		}
	}, []string{"renew/never_creates"}},

	{"renew does nothing", func(b *broken) {
		b.renew = func(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
			answers := make([]driver.Answer, len(renewals))
			for i, c := range renewals {
				rec := b.state(ctx, c.ID)
				answers[i] = driver.Answer{Held: rec.State == driver.StateInProgress, Record: rec}
			}
			return answers
		}
	}, []string{"renew/extends", "renew/own_lapsed_claim"}},

	{"renew refuses a lapsed lease", func(b *broken) {
		b.renew = func(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
			answers := make([]driver.Answer, len(renewals))
			for i, c := range renewals {
				if rec := b.state(ctx, c.ID); rec.Remaining > 0 {
					answers[i] = b.Store.Renew(ctx, renewals[i:i+1])[0]
				} else {
					answers[i].Record = rec
				}
			}
			return answers
		}
	}, []string{"renew/own_lapsed_claim"}},

	{"finish refuses a lapsed lease", func(b *broken) {
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			answers := make([]driver.Answer, len(changes))
			for i, c := range changes {
				if rec := b.state(ctx, c.ID); rec.State == driver.StateInProgress &&
					rec.Remaining <= 0 && !c.EffectApplied {
					answers[i].Record = rec
				} else {
					answers[i] = b.Store.Finish(ctx, changes[i:i+1])[0]
				}
			}
			return answers
		}
	}, []string{"renew/own_lapsed_claim"}},

	{"finish writes nothing", func(b *broken) {
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			answers := make([]driver.Answer, len(changes))
			for i, c := range changes {
				answers[i] = driver.Answer{Held: true, Written: true, Record: b.state(ctx, c.ID)}
			}
			return answers
		}
	}, []string{"finish/owner", "finish/stranger", "batch/mixed"}},

	{"finish sent again is foreign", func(b *broken) {
		eachFinish(b, func(_ context.Context, _ driver.Finish, before dedup.Record,
			a *driver.Answer) {
			if before.State != driver.StateInProgress && before.State != driver.StateAbsent {
				a.Held, a.Written = false, false
			}
		})
	}, []string{"finish/sent_again", "landed/unfinished", "landed/without_claim"}},

	{"finish sent again starts a new window", func(b *broken) {
		eachFinish(b, func(ctx context.Context, c driver.Finish, before dedup.Record,
			a *driver.Answer) {
			if a.Written && before.State == driver.StateSucceeded && !c.EffectApplied {
				c.Result = append(c.Result, '!')
				b.Store.Forget(ctx, []driver.ID{c.ID}, 0)
				b.Store.Finish(ctx, []driver.Finish{landedOf(c)})
			}
		})
	}, []string{"finish/sent_again"}},

	{"finish creates", func(b *broken) {
		eachFinish(b, func(ctx context.Context, c driver.Finish, before dedup.Record,
			a *driver.Answer) {
			if before.State == driver.StateAbsent && !a.Written {
				*a = b.Store.Finish(ctx, []driver.Finish{landedOf(c)})[0]
			}
		})
	}, []string{"finish/stranger", "forget/older_owner"}},

	{"an owner may end twice", func(b *broken) {
		eachFinish(b, func(ctx context.Context, c driver.Finish, before dedup.Record,
			a *driver.Answer) {
			if before.State == driver.StateSucceeded && !a.Written && !c.EffectApplied {
				b.Store.Forget(ctx, []driver.ID{c.ID}, 0)
				*a = b.Store.Finish(ctx, []driver.Finish{landedOf(c)})[0]
			}
		})
	}, []string{"finish/sent_again", "finish/late_owner"}},

	{"landed overwrites succeeded", func(b *broken) {
		eachFinish(b, func(ctx context.Context, c driver.Finish, before dedup.Record,
			a *driver.Answer) {
			if c.EffectApplied && !a.Written && before.State == driver.StateSucceeded {
				b.Store.Forget(ctx, []driver.ID{c.ID}, 0)
				*a = b.Store.Finish(ctx, []driver.Finish{landedOf(c)})[0]
			}
		})
	}, []string{"landed/finished", "landed/without_claim"}},

	{"landed overwrites failed", func(b *broken) {
		eachFinish(b, func(ctx context.Context, c driver.Finish, before dedup.Record,
			a *driver.Answer) {
			if c.EffectApplied && !a.Written && before.State == driver.StateFailed {
				b.Store.Forget(ctx, []driver.ID{c.ID}, 0)
				*a = b.Store.Finish(ctx, []driver.Finish{landedOf(c)})[0]
			}
		})
	}, []string{"landed/finished"}},

	{"landed refused when absent", refuseApplied(driver.StateAbsent),
		[]string{"landed/absent", "landed/without_claim"}},
	{"landed refused when in progress", refuseApplied(driver.StateInProgress),
		[]string{"landed/unfinished"}},
	{"landed refused when released", refuseApplied(driver.StateReleased),
		[]string{"landed/unfinished"}},

	{"landed held by nobody is held", func(b *broken) {
		eachFinish(b, func(_ context.Context, c driver.Finish, _ dedup.Record, a *driver.Answer) {
			a.Held = a.Held || c.EffectApplied && a.Written
		})
	}, []string{"landed/absent", "landed/unfinished", "landed/without_claim"}},
}

// landedOf turns c into an applied effect without a fence, so that it counts without a claim.
func landedOf(c driver.Finish) driver.Finish {
	c.State, c.EffectApplied, c.Fence = driver.StateSucceeded, true, 0
	return c
}
