package layered

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Claim implements [driver.Store]. It costs one round trip to hot, and one to cold for the keys
// that may have a record there. For the keys that have one it costs one more to hot, which
// knows the record from then on.
//
// If hot answers that a key is done, in flight or bound to another payload, that is the
// answer. A claim that hot grants needs no lookup in cold if hot had never heard of the key, and
// the filter proves before and after hot's answer that the key has no record. Otherwise cold is
// asked under the claim.
func (l *layers) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	opinions := l.stage.ask(reqs)
	answers := answered(l.hot.Claim(ctx, readFirst(reqs, opinions)), len(reqs))
	l.stage.askAgain(reqs, answers, opinions)
	wrong := l.look(ctx, reqs, answers, opinions)
	l.stage.settle(reqs, answers, opinions, wrong)
	return answers
}

// readFirst makes hot look before it claims a key whose bits the filter has.
func readFirst(reqs []driver.ClaimRequest, opinions []opinion) []driver.ClaimRequest {
	copied := false
	for i := range opinions {
		if opinions[i].reason != opinionMaybe || reqs[i].LikelyDuplicate {
			continue
		}
		if !copied { // others still read the caller's requests
			reqs, copied = slices.Clone(reqs), true
		}
		reqs[i].LikelyDuplicate = true
	}
	return reqs
}

// look asks cold about the keys that may have a record there. It returns how many keys have no
// record although the filter had their bits.
func (l *layers) look(ctx context.Context, reqs []driver.ClaimRequest, answers []driver.Answer,
	opinions []opinion) (wrong int) {
	var ids []driver.ID
	var at []int
	for i := range answers {
		ans := &answers[i]
		if ans.Err != nil || ans.Outcome != driver.Acquired && ans.Outcome != driver.Uncertain {
			continue
		}
		if opinions != nil && opinions[i].fresh && first(ans) {
			opinions[i].saved = true
			continue
		}
		ids, at = append(ids, reqs[i].ID), append(at, i)
	}
	if len(ids) == 0 {
		return 0
	}
	var told []driver.Finish
	for n, found := range answered(l.cold.Lookup(ctx, ids), len(ids)) {
		i := at[n]
		if opinions != nil && opinions[i].reason == opinionMaybe && found.Err == nil &&
			found.Record.State == driver.StateAbsent {
			wrong++
		}
		told = l.found(told, &reqs[i], &answers[i], &found)
	}
	if len(told) > 0 {
		l.hot.Finish(ctx, told) // where that fails the claim lapses, and the key is looked up again
	}
	return wrong
}

// found answers a claim with the record of the key in cold, and adds the change for hot.
func (l *layers) found(told []driver.Finish, req *driver.ClaimRequest,
	ans, found *driver.Answer) []driver.Finish {
	rec, won := &found.Record, ans.Outcome == driver.Acquired
	switch {
	case found.Err != nil:
		// The core asks again with the same token, and gives the claim back in the end, unless
		// the error says that there is nothing to give back.
		if won && isRefusal(found.Err) {
			told = append(told, unclaim(req, ans))
		}
		*ans = driver.Answer{Err: found.Err}
		return told
	case done(rec.State):
		if c, ok := l.remember(rec, ans.Record.Fence, req, won); ok {
			told = append(told, c)
		} else if won {
			told = append(told, unclaim(req, ans))
		}
		found.Outcome = driver.Duplicate
		if rec.Fingerprint.Conflicts(req.Fingerprint) {
			found.Outcome = driver.Mismatch
		}
	case won && rec.State == driver.StateUncertain:
		// The record is from a time when cold was used alone, so hot does not know that the effect
		// of this key may have happened.
		told, found.Outcome = append(told, unclaim(req, ans)), driver.Uncertain
	case won && rec.State == driver.StateInProgress && rec.Remaining > 0:
		told, found.Outcome = append(told, unclaim(req, ans)), driver.InFlight
	default:
		return told
	}
	*ans = driver.Answer{Outcome: found.Outcome, Record: *rec}
	return told
}

// remember writes a record of cold to hot, for the hot window. If the claim was won, this write
// ends it. If the key is uncertain in hot, the write says that the effect has happened. The fence
// is that of hot, so that hot refuses the change after a Forget in between.
func (l *layers) remember(rec *driver.Record, fence uint64, req *driver.ClaimRequest,
	won bool) (c driver.Finish, ok bool) {
	c = driver.Finish{
		ID: req.ID, Token: req.Token, Fence: fence, Attempt: rec.Attempt, State: rec.State,
		EffectApplied: !won,
		Lease:         req.Lease, Hold: req.Hold, Window: l.warm(rec.Remaining), Result: rec.Result,
		NoResult: rec.NoResult, Fingerprint: rec.Fingerprint, Origin: rec.Origin, Label: rec.Label,
	}
	limits := driver.LimitsOf(l.hot)
	if limits.NoResults && rec.State == driver.StateSucceeded {
		c.Result, c.NoResult = nil, c.NoResult || len(rec.Result) > 0
	}
	return c, won && !limits.NoFailures || c.State == driver.StateSucceeded
}

// warm returns how long hot remembers a key that is to be remembered for window.
func (l *layers) warm(window time.Duration) time.Duration {
	return max(min(l.warmFor, window), time.Millisecond)
}

// unclaim gives back a claim under which nothing has begun.
func unclaim(req *driver.ClaimRequest, ans *driver.Answer) driver.Finish {
	return driver.Finish{
		ID: req.ID, Token: req.Token, Fence: ans.Record.Fence, State: driver.StateReleased,
		NotAttempted: true, Hold: req.Hold, Window: req.Hold,
	}
}

// isRefusal reports whether a store that answered with err looked and refused, or was not asked:
// see [driver.Answer].Err.
func isRefusal(err error) bool {
	var told interface{ NotSent() bool }
	var input *driver.InputError
	return errors.As(err, &told) && told.NotSent() || errors.As(err, &input) ||
		errors.Is(err, driver.ErrStoreFull) || errors.Is(err, driver.ErrUnreadable)
}
