package dedup

import (
	"context"
	"slices"
	"time"
)

// Claim implements [Store]. It costs one round trip to leases, and one to store for the keys
// that may have a record there. For the keys that have one it costs one more to leases, which
// knows the record from then on.
//
// If leases answers that a key is done, in flight or bound to another payload, that is the
// answer. A claim that was won is granted at once when leases had never heard of the key and
// the filter knows, also after the answer of leases, that it has no record. Otherwise store is
// asked under the claim.
func (l *layered) Claim(ctx context.Context, reqs []ClaimRequest) []Answer {
	verdicts := l.front.ask(reqs)
	answers := answered(l.leases.Claim(ctx, readFirst(reqs, verdicts)), len(reqs))
	l.front.askAgain(reqs, answers, verdicts)
	wrong := l.look(ctx, reqs, answers, verdicts)
	l.front.settle(reqs, answers, verdicts, wrong)
	return answers
}

// readFirst makes leases look before it claims a key whose bits the filter has.
func readFirst(reqs []ClaimRequest, verdicts []verdict) []ClaimRequest {
	copied := false
	for i := range verdicts {
		if verdicts[i].reason != verdictMaybe || reqs[i].LikelyDuplicate {
			continue
		}
		if !copied { // the caller's are still read by others
			reqs, copied = slices.Clone(reqs), true
		}
		reqs[i].LikelyDuplicate = true
	}
	return reqs
}

// look asks store about the keys that may have a record there, and returns how often the
// filter had bits for one that has not.
func (l *layered) look(ctx context.Context, reqs []ClaimRequest, answers []Answer,
	verdicts []verdict) (wrong int) {
	var ids []ID
	var at []int
	for i := range answers {
		ans := &answers[i]
		if ans.Err != nil || ans.Outcome != Acquired && ans.Outcome != Uncertain {
			continue
		}
		if verdicts != nil && verdicts[i].fresh && first(ans) {
			verdicts[i].saved = true
			continue
		}
		ids, at = append(ids, reqs[i].ID), append(at, i)
	}
	if len(ids) == 0 {
		return 0
	}
	var told []Finish
	for n, found := range answered(l.store.Lookup(ctx, ids), len(ids)) {
		i := at[n]
		if verdicts != nil && verdicts[i].reason == verdictMaybe && found.Err == nil &&
			found.Record.State == StateAbsent {
			wrong++
		}
		told = l.found(told, &reqs[i], &answers[i], &found)
	}
	if len(told) > 0 {
		l.leases.Finish(ctx, told) // what fails lapses, and is looked up again
	}
	return wrong
}

// found answers a claim with the record of the key in store, and adds the change for leases.
func (l *layered) found(told []Finish, req *ClaimRequest, ans, found *Answer) []Finish {
	rec, won := &found.Record, ans.Outcome == Acquired
	switch {
	case found.Err != nil:
		// The core asks again with the same token, and gives it back in the end, unless the
		// error says that there is nothing to give back.
		if won && !mayHaveExecuted(found.Err) {
			told = append(told, unclaim(req, ans))
		}
		*ans = Answer{Err: found.Err}
		return told
	case rec.State.terminal():
		if c, ok := l.remember(rec, ans.Record.Fence, req, won); ok {
			told = append(told, c)
		} else if won {
			told = append(told, unclaim(req, ans))
		}
		found.Outcome = Duplicate
		if rec.Fingerprint.Conflicts(req.Fingerprint) {
			found.Outcome = Mismatch
		}
	case won && rec.State == StateUncertain:
		// From a time when store was used alone. No claim in leases knows of its danger.
		told, found.Outcome = append(told, unclaim(req, ans)), Uncertain
	case won && rec.State == StateInProgress && rec.Remaining > 0:
		told, found.Outcome = append(told, unclaim(req, ans)), InFlight
	default:
		return told
	}
	*ans = Answer{Outcome: found.Outcome, Record: *rec}
	return told
}

// remember writes a record of store to leases, for the hot window. It ends the claim that was
// won, or, where the key is uncertain, says that the effect has landed. The fence is that of
// leases, so that leases refuses the change after a Forget in between.
func (l *layered) remember(rec *Record, fence uint64, req *ClaimRequest, won bool) (c Finish,
	ok bool) {
	c = Finish{
		ID: req.ID, Token: req.Token, Fence: fence, Attempt: rec.Attempt, State: rec.State,
		Landed: !won,
		Lease:  req.Lease, Hold: req.Hold, Window: l.warm(rec.Remaining), Result: rec.Result,
		NoResult: rec.NoResult, Fingerprint: rec.Fingerprint, Origin: rec.Origin, Label: rec.Label,
	}
	limits := LimitsOf(l.leases)
	if limits.NoResults && rec.State == StateSucceeded {
		c.Result, c.NoResult = nil, c.NoResult || len(rec.Result) > 0
	}
	return c, won && !limits.NoFailures || c.State == StateSucceeded
}

// warm is how long leases remember what is to be remembered for window.
func (l *layered) warm(window time.Duration) time.Duration {
	return max(min(l.hot, window), time.Millisecond)
}

// unclaim gives back a claim under which nothing has begun.
func unclaim(req *ClaimRequest, ans *Answer) Finish {
	return Finish{
		ID: req.ID, Token: req.Token, Fence: ans.Record.Fence, State: StateReleased, Unused: true,
		Hold: req.Hold, Window: req.Hold,
	}
}
