package deduptest

import (
	"context"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// takesOver makes a store take over the live claims for which when returns true, and no others.
func takesOver(when func(req driver.ClaimRequest, rec dedup.Record) bool) func(*broken) {
	return func(b *broken) {
		var o owners
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := make([]driver.Answer, len(reqs))
			for i, req := range reqs {
				rec := b.state(ctx, req.ID)
				token, owned := o.of(req.ID)
				live := rec.State == driver.StateInProgress && rec.Remaining > 0 &&
					token != req.Token
				bent := req
				bent.TakeOverOlderGeneration = false
				if owned && live && req.TakeOverOlderGeneration && when(req, rec) {
					release := driver.Finish{ID: req.ID, Token: token, State: driver.StateReleased,
						Hold: long, NotStarted: true}
					b.Store.Finish(ctx, []driver.Finish{release})
				}
				answers[i] = b.Store.Claim(ctx, []driver.ClaimRequest{bent})[0]
			}
			return o.note(reqs, answers)
		}
	}
}

// sound reports whether req may take over the claim of rec.
func sound(req driver.ClaimRequest, rec dedup.Record) bool {
	return !rec.Irreversible && ranks(req.Origin, rec.Origin) && placed(req.Origin, rec.Origin)
}

func ranks(a, b driver.Origin) bool  { return b.Generation > 0 && a.Generation > b.Generation }
func placed(a, b driver.Origin) bool { return sourced(a, b) && a.Partition == b.Partition }
func sourced(a, b driver.Origin) bool {
	return a.Digest() != 0 && a.Digest() == b.Digest()
}

var generationMutants = []mutant{
	{"a newer generation waits", eachRequestOf(func(req *driver.ClaimRequest) {
		req.TakeOverOlderGeneration = false
	}),
		[]string{"generation/takes_over", "generation/late_owner", "generation/one_taker",
			"concurrent/random_walk"}},

	{"everybody takes over", eachRequestOf(func(req *driver.ClaimRequest) {
		req.TakeOverOlderGeneration = true
	}),
		[]string{"generation/kept"}},

	{"takeover ignores the partition",
		takesOver(func(req driver.ClaimRequest, rec dedup.Record) bool {
			return !rec.Irreversible && ranks(req.Origin, rec.Origin) && sourced(req.Origin,
				rec.Origin)
		}), []string{"generation/kept"}},

	{"takeover ignores the source", takesOver(func(req driver.ClaimRequest, rec dedup.Record) bool {
		return !rec.Irreversible && ranks(req.Origin, rec.Origin) &&
			req.Origin.Partition == rec.Origin.Partition
	}), []string{"generation/kept"}},

	{"an unknown source takes over", takesOver(func(req driver.ClaimRequest,
		rec dedup.Record) bool {
		return sound(req, rec) || !rec.Irreversible && ranks(req.Origin, rec.Origin) &&
			req.Origin.Digest() == rec.Origin.Digest()
	}), []string{"generation/kept"}},

	{"the same generation takes over",
		takesOver(func(req driver.ClaimRequest, rec dedup.Record) bool {
			return sound(req, rec) || !rec.Irreversible && placed(req.Origin, rec.Origin) &&
				req.Origin.Generation == rec.Origin.Generation
		}), []string{"generation/kept", "generation/one_taker"}},

	{"an unknown generation gives way",
		takesOver(func(req driver.ClaimRequest, rec dedup.Record) bool {
			return !rec.Irreversible && placed(req.Origin, rec.Origin) &&
				req.Origin.Generation > rec.Origin.Generation
		}), []string{"generation/kept"}},

	{"takeover passes danger", takesOver(func(req driver.ClaimRequest, rec dedup.Record) bool {
		rec.Irreversible = false
		return sound(req, rec)
	}), []string{"generation/danger"}},

	{"takeover starts again from attempt 1", func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := make([]driver.Answer, len(reqs))
			for i, req := range reqs {
				live := b.state(ctx, req.ID)
				answers[i] = b.Store.Claim(ctx, reqs[i:i+1])[0]
				if a := &answers[i]; a.Outcome == dedup.Acquired && !a.Mine &&
					live.State == driver.StateInProgress && live.Remaining > 0 {
					a.Record.Attempt = 1
				}
			}
			return answers
		}
	}, []string{"generation/takes_over"}},

	{"who was taken over still holds", func(b *broken) {
		eachFinish(b, func(_ context.Context, _ driver.Finish, before dedup.Record,
			a *driver.Answer) {
			a.Held = a.Held || before.State == driver.StateInProgress
		})
	}, []string{"generation/late_owner"}},

	{"finished keys give way", func(b *broken) {
		b.claim = func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
			answers := b.Store.Claim(ctx, reqs)
			for i, a := range answers {
				if reqs[i].TakeOverOlderGeneration && a.Outcome == dedup.Duplicate {
					b.Store.Forget(ctx, []driver.ID{reqs[i].ID}, 0)
					answers[i] = b.Store.Claim(ctx, reqs[i:i+1])[0]
				}
			}
			return answers
		}
	}, []string{"generation/other_states"}},
}
