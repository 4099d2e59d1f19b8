package layered

import (
	"context"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Moving returns a store for the time between two stores: it claims in both, writes in both and
// reads both, so that processes that know only one of them and processes that know both exclude
// each other. Use it to change, under load, settings that redisadapter's New would refuse; the
// comment of that package has the steps.
//
// A key is claimed in lead first, then in follow, and only a caller that gets both has it. When
// follow knows better (done, in flight, uncertain, another fingerprint), its answer
// counts. The claim in lead is then given back, and an end is copied into lead for its
// remaining time, unless lead has one window for all keys (redisadapter's Compact). A
// claim is held only while it is held in both.
//
// An end is written into lead first. So a process that dies between the two leaves its
// key done for processes that know lead or both. Processes that know follow alone would run
// it again once its lease has ended. Hence two rollouts: Moving(old, next)
// while processes with old alone are running, then Moving(next, old), and next alone only
// when no Moving(old, next) runs any more.
//
// While both orders run, two processes that claim one key at the same moment may each get
// one half, and both get InFlight: they must retry with jitter, as always.
//
// The fence of a claim is the larger of the two. Both grow with their servers' clocks, so if those
// are two servers, a fence may fall back by their difference at the end of the move. A
// [dedup.Completion] that has a With, such as that of redisadapter's Store.Atomic, is refused,
// because no transaction spans both. It costs the round trips of both stores, one after the other;
// an end by a handler that has read its fence costs one more, because it is written only when both
// claims are certain. Forget forgets in both, and an error may mean that only one store has
// forgotten.
//
// The outcome is unknown unless both stores answer. Errors of Moving itself are a
// [*driver.InputError]: a nil store, two with the same keys, or two that each have one window for
// all keys, but not the same one, so that no end could satisfy both.
func Moving(lead, follow driver.Store) (driver.Store, error) {
	switch {
	case isNil(lead):
		return nil, bad("Lead", "is nil")
	case isNil(follow):
		return nil, bad("Follow", "is nil")
	case sharesKeys(lead, follow):
		return nil, bad("Follow", "has the same keys as Lead; a move needs another prefix")
	}
	a, b := driver.LimitsOf(lead).Window, driver.LimitsOf(follow).Window
	if a != 0 && b != 0 && a != b {
		return nil, bad("Follow",
			"has one window for all keys, %v, and Lead another, %v: move by way of a layout with a record for each key",
			b, a)
	}
	m := &moving{waker: waker{lead}, lead: lead, follow: follow}
	return withForgets(m, lead, follow), nil
}

// sharesKeys reports whether both stores are one, or have the same keys.
func sharesKeys(lead, follow driver.Store) bool {
	s, ok := lead.(interface{ SharesKeys(other driver.Store) bool })
	return same(lead, follow) || ok && s.SharesKeys(follow)
}

type moving struct {
	waker
	lead, follow driver.Store
	claims       movingClaims
}

// Limits are those of both stores together.
func (m *moving) Limits() driver.Limits { return limitsOfBoth(m.lead, m.follow) }

// Claim implements [driver.Store].
func (m *moving) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	start := time.Now()
	answers := m.lead.Claim(ctx, reqs)
	m.lookToo(ctx, reqs, answers)
	won := where(answers, func(a *driver.Answer) bool {
		return a.Err == nil && a.Outcome == driver.Acquired
	})
	if len(won) == 0 {
		return answers
	}
	asked := pick(reqs, won)
	for n := range asked {
		asked[n].Lease = shortened(asked[n].Lease, start)
	}
	var back []driver.Finish
	for n, b := range m.follow.Claim(ctx, asked) {
		i := won[n]
		switch {
		case b.Err == nil && b.Outcome == driver.Acquired:
			m.claims.note(&reqs[i], answers[i].Record.Fence, b.Record.Fence)
			b.Mine = b.Mine || answers[i].Mine
			b.Record = merge(answers[i].Record, b.Record)
		case b.Err == nil || isRefusal(b.Err):
			back = append(back, m.undo(&reqs[i], &answers[i].Record, &b))
			b.Record = merge(b.Record, undone(answers[i].Record))
		}
		// Otherwise the outcome is unknown, and the core asks again or gives the claim back.
		answers[i] = b
	}
	if len(back) > 0 {
		m.lead.Finish(ctx, back) // where that fails, the claim lapses
	}
	return answers
}

// lookToo adds what follow knows to the claims that lead refused: follow may know of an end.
func (m *moving) lookToo(ctx context.Context, reqs []driver.ClaimRequest, answers []driver.Answer) {
	refused := where(answers, func(a *driver.Answer) bool {
		return a.Err == nil && a.Outcome != driver.Acquired
	})
	left := where(answers, func(a *driver.Answer) bool {
		return a.Outcome == driver.InFlight && a.Record.Remaining <= 0
	})
	m.also(ctx, m.follow, answers, refused, func(i int) driver.ID { return reqs[i].ID })
	for _, i := range refused {
		a := &answers[i]
		switch {
		case !done(a.Record.State):
		case a.Record.Fingerprint.Conflicts(reqs[i].Fingerprint):
			a.Outcome = driver.Mismatch
		default:
			a.Outcome = driver.Duplicate
		}
	}
	// lead may report a key that it left alone (OnlyNew) as in flight. Then the uncertain record of
	// follow counts.
	for _, i := range left {
		if a := &answers[i]; a.Outcome == driver.InFlight &&
			a.Record.State == driver.StateUncertain {
			a.Outcome = driver.Uncertain
		}
	}
}

// also adds what the other store knows to answers of one store.
func (m *moving) also(ctx context.Context, other driver.Store, answers []driver.Answer, which []int,
	id func(int) driver.ID) {
	if len(which) == 0 {
		return
	}
	ids := make([]driver.ID, len(which))
	for n, i := range which {
		ids[n] = id(i)
	}
	for n, l := range other.Lookup(ctx, ids) {
		if a := &answers[which[n]]; l.Err == nil {
			a.Record = merge(a.Record, l.Record)
		}
	}
}

// shortened returns the lease to ask of the store follow. It ends no later than the lease in the
// store lead, which began after start. Lead is asked first. Suppose that the claims of a dead owner
// lapse, and a caller gets the claim in lead. If the old claim in follow were still live then, the
// caller would have to give its own claim back.
func shortened(lease time.Duration, start time.Time) time.Duration {
	return max(lease-time.Since(start), lease/2)
}

// undone returns the record that a claim in lead leaves when it is taken back: a record that keeps
// no other claim waiting.
func undone(rec driver.Record) driver.Record {
	rec.State, rec.Attempt = driver.StateReleased, rec.Attempt-1
	return rec
}

// undo takes back a claim in lead that follow has not granted. If follow has an end, and lead can
// keep it for its remaining time, undo copies it into lead, so that lead knows it the next time.
func (m *moving) undo(req *driver.ClaimRequest, mine *driver.Record,
	b *driver.Answer) driver.Finish {
	c := driver.Finish{ID: req.ID, Token: req.Token, State: driver.StateReleased,
		NotAttempted: true,
		Hold:         req.Hold, Fence: mine.Fence, Attempt: mine.Attempt}
	rec := &b.Record
	limits := driver.LimitsOf(m.lead)
	if b.Err != nil || b.Outcome != driver.Duplicate || rec.Remaining <= 0 ||
		limits.NoFailures && rec.State == driver.StateFailed || limits.Window != 0 {
		return c
	}
	c.State, c.NotAttempted, c.Window, c.Result, c.NoResult = rec.State, false, rec.Remaining,
		rec.Result,
		rec.NoResult
	c.Fingerprint, c.Origin, c.Label = rec.Fingerprint, rec.Origin, rec.Label
	if limits.NoResults && c.State == driver.StateSucceeded && len(c.Result) > 0 {
		c.Result, c.NoResult = nil, true
	}
	return c
}

// Renew implements [driver.Store].
func (m *moving) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	start := time.Now()
	inLead, inFollow := split(&m.claims, renewals, renewalOf)
	answers := m.lead.Renew(ctx, inLead)
	held := where(answers, func(a *driver.Answer) bool { return a.Err == nil && a.Held })
	lost := where(answers, func(a *driver.Answer) bool { return a.Err == nil && !a.Held })
	m.also(ctx, m.follow, answers, lost, func(i int) driver.ID { return renewals[i].ID })
	if len(held) == 0 {
		return answers
	}
	asked := pick(inFollow, held)
	for n := range asked {
		asked[n].Lease = shortened(asked[n].Lease, start)
	}
	for n, b := range m.follow.Renew(ctx, asked) {
		i := held[n]
		if b.Err == nil {
			b.Record = merge(answers[i].Record, b.Record)
		}
		if b.Held {
			m.claims.extend(&renewals[i])
		}
		answers[i] = b
	}
	return answers
}

// Lookup implements [driver.Store].
func (m *moving) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	answers := m.lead.Lookup(ctx, ids)
	for i, b := range m.follow.Lookup(ctx, ids) {
		a := &answers[i]
		switch {
		case a.Err == nil && (b.Err == nil || done(a.Record.State)):
			a.Record = merge(a.Record, b.Record)
		case b.Err == nil && done(b.Record.State), a.Err == nil:
			*a = b
		}
	}
	return answers
}

// Forget implements [driver.Store].
func (m *moving) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	errs := m.lead.Forget(ctx, ids, hold)
	var gone []int
	for i, err := range errs {
		if err == nil {
			gone = append(gone, i)
		}
	}
	if len(gone) == 0 {
		return errs
	}
	for n, err := range m.follow.Forget(ctx, pick(ids, gone), hold) {
		errs[gone[n]] = err
	}
	return errs
}

// rank orders two records of a key: the record with the higher rank counts.
func rank(r *driver.Record) int {
	switch {
	case done(r.State):
		return 4
	case r.State == driver.StateUncertain:
		return 3
	case r.State == driver.StateInProgress && r.Remaining > 0:
		return 2
	case r.State != driver.StateAbsent:
		return 1
	}
	return 0
}

// merge is what two stores know of a key together.
func merge(a, b driver.Record) driver.Record {
	if rank(&a) < rank(&b) {
		a, b = b, a
	}
	if a.State == b.State {
		a.Remaining = min(a.Remaining, b.Remaining)
	}
	if b.State == driver.StateAbsent {
		return a
	}
	a.Attempt, a.Fence, a.Irreversible = max(a.Attempt, b.Attempt), max(a.Fence, b.Fence),
		a.Irreversible || b.Irreversible
	if len(b.Steps) > len(a.Steps) {
		a.Steps = b.Steps
	}
	return a
}

// where lists the items for which yes holds.
func where[T any](items []T, yes func(*T) bool) (which []int) {
	for i := range items {
		if yes(&items[i]) {
			which = append(which, i)
		}
	}
	return which
}

// pick returns the items that are listed.
func pick[T any](items []T, which []int) []T {
	picked := make([]T, len(which))
	for n, i := range which {
		picked[n] = items[i]
	}
	return picked
}
