package layered

import (
	"context"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Finish implements [driver.Store].
func (m *moving) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	answers := make([]driver.Answer, len(changes))
	inLead, inFollow := split(&m.claims, changes, endOf)
	var owned, all, releases []int
	for i := range changes {
		switch c := &changes[i]; {
		case c.With != nil:
			answers[i].Err = bad("Completion.With",
				"is a %T, and a store that is being moved has no transaction over both", c.With)
		case c.State == driver.StateReleased:
			releases = append(releases, i)
		case !c.EffectApplied:
			owned = append(owned, i)
		default:
			all = append(all, i)
		}
	}
	all = append(all, m.certain(ctx, answers, changes, inLead, inFollow, owned)...)
	m.finishBoth(ctx, answers, inLead, inFollow, all)
	m.releaseBoth(ctx, answers, inLead, inFollow, releases)
	for i := range answers {
		if answers[i].Err == nil {
			m.claims.drop(changes[i].Token)
		}
	}
	return answers
}

// certain renews the claims in follow whose end only their owner may write: lead must not
// record a key as done that follow then gives to somebody else. It answers the ends whose
// claims are lost there, and returns the others.
func (m *moving) certain(ctx context.Context, answers []driver.Answer, changes,
	inLead, inFollow []driver.Finish, owned []int) (held []int) {
	if len(owned) == 0 {
		return nil
	}
	renewals := make([]driver.Renewal, len(owned))
	for n, i := range owned {
		c := &inFollow[i]
		renewals[n] = driver.Renewal{ID: c.ID, Token: c.Token, Fence: c.Fence, Hold: c.Hold,
			Window: c.Window, Lease: m.claims.lease(c.Token)}
	}
	var lost []int
	for n, r := range m.follow.Renew(ctx, renewals) {
		switch i := owned[n]; {
		case r.Err != nil:
			answers[i] = driver.Answer{Err: r.Err}
		case r.Held:
			held = append(held, i)
		default:
			lost = append(lost, i)
		}
	}
	if len(lost) == 0 {
		return held
	}
	// The claim is lost: an earlier send has written the end, or nothing will be written.
	var again, gone []int
	for n, b := range m.follow.Finish(ctx, pick(inFollow, lost)) {
		answers[lost[n]] = b
		switch {
		case b.Err == nil && b.Written:
			again = append(again, lost[n])
		case b.Err == nil:
			gone = append(gone, lost[n])
		}
	}
	m.also(ctx, m.lead, answers, gone, func(i int) driver.ID { return changes[i].ID })
	if len(again) > 0 {
		for n, a := range m.lead.Finish(ctx, pick(inLead, again)) {
			answers[again[n]] = combine(a, answers[again[n]])
		}
	}
	return held
}

// finishBoth writes into lead, then into follow what lead does not forbid.
func (m *moving) finishBoth(ctx context.Context, answers []driver.Answer, inLead,
	inFollow []driver.Finish, all []int) {
	if len(all) == 0 {
		return
	}
	var on, off []int
	for n, a := range m.lead.Finish(ctx, pick(inLead, all)) {
		i := all[n]
		answers[i] = a
		// An effect that has happened is recorded in follow even if lead already has another
		// end, but not if lead has forgotten its owner.
		if a.Err == nil && (a.Written || inLead[i].EffectApplied && done(a.Record.State)) {
			on = append(on, i)
		} else if a.Err == nil {
			off = append(off, i)
		}
	}
	m.also(ctx, m.follow, answers, off, func(i int) driver.ID { return inLead[i].ID })
	if len(on) == 0 {
		return
	}
	for n, b := range m.follow.Finish(ctx, pick(inFollow, on)) {
		answers[on[n]] = combine(answers[on[n]], b)
	}
}

// releaseBoth releases in follow first, and then in lead, which every claim asks first.
func (m *moving) releaseBoth(ctx context.Context, answers []driver.Answer, inLead,
	inFollow []driver.Finish, releases []int) {
	if len(releases) == 0 {
		return
	}
	inside := m.follow.Finish(ctx, pick(inFollow, releases))
	for n, a := range m.lead.Finish(ctx, pick(inLead, releases)) {
		answers[releases[n]] = combine(a, inside[n])
	}
}

// combine returns the answer of two stores to one end.
func combine(a, b driver.Answer) driver.Answer {
	switch {
	case a.Err != nil:
		return a
	case b.Err != nil:
		return b
	}
	return driver.Answer{Held: a.Held && b.Held, Written: a.Written && b.Written,
		Record: merge(a.Record, b.Record)}
}

// movingClaims remembers the two fences of each claim under way. Each store must get its own
// fence back, because it compares that with the fences that a Forget left there.
type movingClaims struct {
	mu     sync.Mutex
	of     map[driver.Token]movingClaim
	pruned int // size after the last look for what has ended
}

type movingClaim struct {
	lead, follow uint64
	lease        time.Duration
	until        time.Time
}

const (
	// movingLease is the lease for which certain renews a claim that is not known here.
	movingLease = 10 * time.Second
	// movingLinger is how long the fences of a claim that has ended are remembered.
	movingLinger = time.Second
	// movingPrune is how many claims are kept before those that have ended are looked for.
	movingPrune = 1024
)

func (c *movingClaims) note(req *driver.ClaimRequest, lead, follow uint64) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[driver.Token]movingClaim)
	}
	if len(c.of) >= 2*max(c.pruned, movingPrune) {
		for token, claim := range c.of {
			if now.After(claim.until) {
				delete(c.of, token)
			}
		}
		c.pruned = len(c.of)
	}
	c.of[req.Token] = movingClaim{lead, follow, req.Lease, now.Add(req.Lease + req.Hold)}
}

// extend keeps a claim that was renewed.
func (c *movingClaims) extend(r *driver.Renewal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if claim, ok := c.of[r.Token]; ok {
		claim.until = time.Now().Add(r.Lease + r.Hold)
		c.of[r.Token] = claim
	}
}

// drop forgets a claim that has ended, but not at once: if its end is sent again, each store
// must still get its own fence, or a Forget in between would be undone.
func (c *movingClaims) drop(token driver.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if claim, ok := c.of[token]; ok {
		claim.until = time.Now().Add(movingLinger)
		c.of[token] = claim
	}
}

func (c *movingClaims) lease(token driver.Token) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if claim, ok := c.of[token]; ok {
		return claim.lease
	}
	return movingLease
}

// split returns renewals, or ends, as each store is to see them.
func split[T any](c *movingClaims, items []T, attempt func(*T) (driver.Token, *uint64)) (lead,
	follow []T) {
	lead, follow = append(lead, items...), append(follow, items...)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range items {
		token, inLead := attempt(&lead[i])
		_, inFollow := attempt(&follow[i])
		// Another fence belongs to another claim of the same token: both stores get it as it is.
		if claim, ok := c.of[token]; ok && *inLead == max(claim.lead, claim.follow) {
			*inLead, *inFollow = claim.lead, claim.follow
		}
	}
	return lead, follow
}

func endOf(c *driver.Finish) (token driver.Token, fence *uint64) { return c.Token, &c.Fence }

func renewalOf(r *driver.Renewal) (token driver.Token, fence *uint64) { return r.Token, &r.Fence }
