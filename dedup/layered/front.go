package layered

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Front returns store with a filter in front of it. The filter may be wrong in one direction only,
// and only speed depends on it:
//
//   - A claim of a key whose bits the filter has is sent as [driver.ClaimRequest].LikelyDuplicate:
//     the store looks before it writes. All other claims are sent as they are. The store decides
//     in both cases, so any filter may be used here, also one that lags behind.
//   - A Lookup, and so [dedup.Deduper.Seen], of a key that the filter proves absent at this very
//     moment is answered without the store. Only a filter that gets every write before it
//     is sent can prove that: bloom's Filter after Rebuild and Feed.Open, in the one process that
//     writes to the store. With Filter.Follow every Lookup is sent.
//
// If the filter has a method Add(id [16]byte), as bloom's Filter has, it is called with the ID of
// every claim, renewal and end before that is sent. The filter has to remember a key for the
// Window of the Dedupers and their LeaseTTL, or for their Hold if that is longer.
//
// The store that is returned also has those optional methods of store that a Deduper uses. The
// error is an [*driver.InputError] for a nil store or filter.
func Front(store driver.Store, filter Filter) (driver.Store, error) {
	switch {
	case isNil(store):
		return nil, &driver.InputError{Field: "store", Reason: "is nil"}
	case isNil(filter):
		return nil, &driver.InputError{Field: "filter", Reason: "is nil"}
	}
	f := &filtered{waker: waker{store}, store: store, filter: filter, wrong: wrongOf(filter),
		add: func([16]byte) {}}
	if a, ok := filter.(interface{ Add(id [16]byte) }); ok {
		f.add = a.Add
	}
	pairs, inPairs := store.(driver.FinishClaimer)
	counter, counts := store.(driver.ForgetCounter)
	switch both := (filteredPairs{f, pairs}); {
	case inPairs && counts:
		return struct {
			*filtered
			filteredPairs
			driver.ForgetCounter
		}{f, both, counter}, nil
	case inPairs:
		return struct {
			*filtered
			filteredPairs
		}{f, both}, nil
	case counts:
		return struct {
			*filtered
			driver.ForgetCounter
		}{f, counter}, nil
	}
	return f, nil
}

// filtered is a store behind a filter.
type filtered struct {
	waker
	store  driver.Store
	filter Filter
	add    func(id [16]byte)
	wrong  func(n int)
}

// Limits are those of the store.
func (f *filtered) Limits() driver.Limits { return driver.LimitsOf(f.store) }

// Recycle implements [driver.Recycler].
func (f *filtered) Recycle(answers []driver.Answer) {
	if r, ok := f.store.(driver.Recycler); ok {
		r.Recycle(answers)
	}
}

// Claim implements [driver.Store].
func (f *filtered) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	sent, maybe := f.claims(reqs)
	answers := f.store.Claim(ctx, sent)
	f.judge(maybe, answers, first)
	return answers
}

// claims asks the filter about the keys of claims, and then adds the keys to the filter.
func (f *filtered) claims(reqs []driver.ClaimRequest) (sent []driver.ClaimRequest, maybe []int) {
	for i := range reqs {
		// The filter may lag by any time: the store decides.
		if _, reason := f.filter.Absent(reqs[i].ID, math.MaxInt64); reason == opinionMaybe {
			maybe = append(maybe, i)
		}
	}
	for i := range reqs { // after all questions: a batch may have a key twice
		f.add(reqs[i].ID)
	}
	if len(maybe) == 0 {
		return reqs, nil
	}
	sent = slices.Clone(reqs) // others still read the caller's requests
	for _, i := range maybe {
		sent[i].LikelyDuplicate = true
	}
	return sent, maybe
}

// judge tells the filter how often it had the bits of a key that the store did not know.
func (f *filtered) judge(maybe []int, answers []driver.Answer, unknown func(*driver.Answer) bool) {
	wrong := 0
	for _, i := range maybe {
		if i < len(answers) && unknown(&answers[i]) {
			wrong++
		}
	}
	if wrong > 0 {
		f.wrong(wrong)
	}
}

// Renew implements [driver.Store].
func (f *filtered) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	for i := range renewals {
		f.add(renewals[i].ID)
	}
	return f.store.Renew(ctx, renewals)
}

// Finish implements [driver.Store].
func (f *filtered) Finish(ctx context.Context, ends []driver.Finish) []driver.Answer {
	f.ends(ends)
	return f.store.Finish(ctx, ends)
}

// ends adds the keys of ends to the filter.
func (f *filtered) ends(ends []driver.Finish) {
	for i := range ends {
		f.add(ends[i].ID)
	}
}

// Lookup implements [driver.Store].
func (f *filtered) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	answers := make([]driver.Answer, len(ids))
	var rest []driver.ID
	var at, maybe []int
	for i, id := range ids {
		absent, reason := f.filter.Absent(id, 0)
		if absent {
			continue
		}
		if reason == opinionMaybe {
			maybe = append(maybe, len(rest))
		}
		rest, at = append(rest, id), append(at, i)
	}
	if len(rest) == 0 {
		return answers
	}
	found := answered(f.store.Lookup(ctx, rest), len(rest))
	for n, i := range at {
		answers[i] = found[n]
	}
	f.judge(maybe, found, func(ans *driver.Answer) bool {
		return ans.Err == nil && ans.Record.State == driver.StateAbsent
	})
	return answers
}

// Forget implements [driver.Store].
func (f *filtered) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	return f.store.Forget(ctx, ids, hold)
}

// filteredPairs adds FinishClaim to a filtered store whose own store has it.
type filteredPairs struct {
	f     *filtered
	store driver.FinishClaimer
}

// FinishClaim implements [driver.FinishClaimer].
func (p filteredPairs) FinishClaim(ctx context.Context, ends []driver.Finish,
	reqs []driver.ClaimRequest) (ended, claimed []driver.Answer) {
	sent, maybe := p.f.claims(reqs)
	p.f.ends(ends)
	ended, claimed = p.store.FinishClaim(ctx, ends, sent)
	p.f.judge(maybe, claimed, first)
	return ended, claimed
}
