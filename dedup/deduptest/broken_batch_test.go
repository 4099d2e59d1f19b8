package deduptest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

var batchMutants = []mutant{
	{"answers in another order", func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := b.Store.Claim(ctx, reqs)
			slices.Reverse(answers)
			return answers
		}
	}, []string{"batch/mixed"}},

	{"lookups slip by one", func(b *broken) {
		b.lookup = func(ctx context.Context, ids []driver.ID) []driver.Answer {
			answers := b.Store.Lookup(ctx, ids)
			if len(answers) > 1 {
				answers = append(answers[1:], answers[0])
			}
			return answers
		}
	}, []string{"batch/mixed", "batch/lookup_changes_nothing"}},

	{"one held item fails its batch", func(b *broken) {
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			answers := b.Store.Finish(ctx, changes)
			if slices.ContainsFunc(answers, func(a driver.Answer) bool { return !a.Written }) {
				return slices.Repeat([]driver.Answer{{}}, len(answers))
			}
			return answers
		}
	}, []string{"batch/mixed"}},

	{"an empty batch has an answer", func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			return append(make([]driver.Answer, 0, 1),
				b.Store.Claim(ctx, reqs)...)[:max(1, len(reqs))]
		}
	}, []string{"batch/empty"}},

	{"the context is ignored", func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			return b.Store.Claim(context.WithoutCancel(ctx), reqs)
		}
	}, []string{"batch/cancelled"}},

	{"a cancelled end is executed", func(b *broken) {
		b.finish = func(ctx context.Context, changes []driver.Finish) []driver.Answer {
			b.Store.Finish(context.WithoutCancel(ctx), changes)
			return b.Store.Finish(ctx, changes)
		}
	}, []string{"batch/cancelled"}},

	{"reading keeps alive", func(b *broken) {
		var o owners
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			return o.note(reqs, b.Store.Claim(ctx, reqs))
		}
		b.lookup = func(ctx context.Context, ids []driver.ID) []driver.Answer {
			for _, id := range ids {
				if token, ok := o.of(id); ok {
					b.Store.Renew(ctx, []driver.Renewal{{ID: id, Token: token, Lease: DefaultLease,
						Hold: long}})
				}
			}
			return b.Store.Lookup(ctx, ids)
		}
	}, []string{"batch/lookup_changes_nothing"}},

	{"attempts stop at four", func(b *broken) {
		// Only a longer history shows this.
		eachClaim(b, func(_ driver.ClaimRequest, a *driver.Answer) {
			if a.Outcome == dedup.Acquired && a.Record.Attempt > 4 {
				a.Record.Attempt = 4
			}
		})
	}, []string{"concurrent/random_walk"}},
}

// unreadableStore holds planted keys that it cannot read, and answers as for each of them. With nil
// it does it right.
func unreadableStore(as *driver.Answer) Harness {
	planted := map[driver.ID]bool{}
	bent := func(id driver.ID, a *driver.Answer) {
		switch {
		case !planted[id]:
		case as == nil:
			*a = driver.Answer{Err: driver.ErrUnreadable}
		default:
			*a = *as
		}
	}
	return Harness{
		New: func(testing.TB) dedup.Store {
			b := &broken{Store: dedup.Memory(1 << 16)}
			eachClaim(b, func(req driver.ClaimRequest, a *driver.Answer) { bent(req.ID, a) })
			eachFinish(b, func(_ context.Context, c driver.Finish, _ dedup.Record,
				a *driver.Answer) {
				bent(c.ID, a)
			})
			b.renew = func(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
				answers := b.Store.Renew(ctx, renewals)
				for i := range renewals {
					bent(renewals[i].ID, &answers[i])
				}
				return answers
			}
			b.lookup = func(ctx context.Context, ids []driver.ID) []driver.Answer {
				answers := b.Store.Lookup(ctx, ids)
				for i := range ids {
					bent(ids[i], &answers[i])
				}
				return answers
			}
			return b
		},
		Unreadable: map[string]func(testing.TB, dedup.Store, driver.ID){
			"newer version": func(_ testing.TB, _ dedup.Store, id driver.ID) { planted[id] = true },
		},
	}
}

// A record the store cannot read is neither absent nor done.
func TestUnreadableRecords(t *testing.T) {
	const name = "unreadable/newer version"
	for as, answer := range map[string]*driver.Answer{
		"right": nil,
		"absent": {Outcome: dedup.Acquired,
			Record: dedup.Record{Attempt: 1, Fence: 1, Remaining: time.Second}},
		"done":    {Outcome: dedup.Duplicate, Record: dedup.Record{State: driver.StateSucceeded}},
		"foreign": {Outcome: dedup.InFlight, Record: dedup.Record{State: driver.StateInProgress}},
	} {
		t.Run(as, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := recordSuite(t, unreadableStore(answer), name)
				assert.NotEqual(t, as == "right", said[name] != "", said[name])
			})
		})
	}
}
