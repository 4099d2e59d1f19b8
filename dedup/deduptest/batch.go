package deduptest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/onceward/onceward/dedup/driver"
)

// batchSize is the number of items of one call. It is not a multiple of the number of kinds, so
// that an answer that slips by one place is of the wrong kind.
const batchSize = 599

// kind is one state of a key before a batch is sent.
type kind struct {
	name    string
	outcome driver.Outcome
	mine    bool
	state   driver.State
	// held and written are what Finish answers to the claimer afterwards.
	held, written bool
	attempt       int
}

// kinds of a mixed batch, in turn. A lapsed claim is the one whose lease is short.
var kinds = []kind{
	{"absent", driver.Acquired, false, driver.StateAbsent, true, true, 1},
	{"in flight", driver.InFlight, false, driver.StateInProgress, false, false, 1},
	{"own", driver.Acquired, true, driver.StateInProgress, true, true, 1},
	{"succeeded", driver.Duplicate, false, driver.StateSucceeded, false, false, 1},
	{"failed", driver.Duplicate, false, driver.StateFailed, false, false, 1},
	{"released", driver.Acquired, false, driver.StateReleased, true, true, 2},
	{"mismatch", driver.Mismatch, false, driver.StateInProgress, false, false, 1},
	{"lapsed", driver.Acquired, false, driver.StateInProgress, true, true, 2},
}

// member is one item of the mixed batch.
type member struct {
	kind
	id       driver.ID
	before   driver.Token // who made the key what it is
	now      driver.Token // who asks
	bound, f driver.Fingerprint
}

func (m member) result() []byte { return fmt.Appendf(nil, "%s %x", m.name, m.id) }

func (c *check) newMembers() []member {
	kinds := slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool {
		return c.h.SeenOnly && k.name == "failed" || c.h.DoneOnly && k.name == "mismatch"
	})
	members := make([]member, batchSize)
	for i := range members {
		m := member{kind: kinds[i%len(kinds)], id: newID(), before: newToken(), now: newToken(),
			bound: newFingerprint(1)}
		m.f = m.bound
		switch m.name {
		case "own":
			m.now = m.before
		case "mismatch":
			m.f = newFingerprint(1)
		}
		members[i] = m
	}
	return members
}

// checkBatchMixed sends one claim, one end and one lookup for keys of every kind, and
// compares each answer with its own item.
func checkBatchMixed(c *check) {
	members := c.newMembers()
	c.prepare(members)

	reqs := make([]driver.ClaimRequest, len(members))
	for i, m := range members {
		reqs[i] = driver.ClaimRequest{ID: m.id, Token: m.now, Lease: long, Hold: long,
			Fingerprint: m.f}
	}
	for i, a := range c.claims(reqs...) {
		m := members[i]
		c.learnt("Claim", a)
		if a.Outcome != m.outcome || a.Mine != m.mine ||
			a.Record.Attempt != m.attempt && (!c.h.DoneOnly || a.Outcome != driver.Duplicate) {
			c.Fatalf("claim %d, of a key that is %s: want %v, mine %t, attempt %d, got %s",
				i, m.name, m.outcome, m.mine, m.attempt, describe(a))
		}
		if a.Outcome == driver.Duplicate {
			c.wantResult("its own result", a.Record, m.result())
		}
	}

	changes := make([]driver.Finish, len(members))
	for i, m := range members {
		changes[i] = driver.Finish{ID: m.id, Token: m.now, State: driver.StateSucceeded,
			Window: long,
			Result: m.result(), Fingerprint: m.bound}
	}
	for i, a := range c.finishes(changes...) {
		c.wantEnd(fmt.Sprintf("end %d, of a key that was %s", i, members[i].name),
			c.learnt("Finish", a), members[i].held, members[i].written)
	}

	ids := make([]driver.ID, len(members))
	for i, m := range members {
		ids[i] = m.id
	}
	for i, a := range c.lookups(ids...) {
		m := members[i]
		want := driver.StateSucceeded
		if !m.written {
			want = m.state
		}
		c.wantState(fmt.Sprintf("lookup %d, of a key that was %s", i, m.name),
			c.learnt("Lookup", a).Record, want)
		if want == driver.StateSucceeded {
			c.wantResult("its own result", a.Record, m.result())
		}
	}
}

// prepare brings every member into the state that its kind says.
func (c *check) prepare(members []member) {
	c.Helper()
	var reqs []driver.ClaimRequest
	var changes []driver.Finish
	for _, m := range members {
		if m.state == driver.StateAbsent {
			continue
		}
		req := driver.ClaimRequest{ID: m.id, Token: m.before, Lease: long, Hold: long,
			Fingerprint: m.bound}
		if m.name == "lapsed" {
			req.Lease = c.h.Lease
		}
		reqs = append(reqs, req)
		if m.state != driver.StateInProgress {
			change := driver.Finish{ID: m.id, Token: m.before, State: m.state, Window: long,
				Hold: long, Fingerprint: m.bound}
			if m.state != driver.StateReleased {
				change.Result = m.result()
			}
			changes = append(changes, change)
		}
	}
	for _, a := range c.claims(reqs...) {
		c.wantOutcome("a fresh claim in a batch", c.learnt("Claim", a), driver.Acquired)
	}
	for _, a := range c.finishes(changes...) {
		c.wantEnd("an owner's end in a batch", c.learnt("Finish", a), true, true)
	}
	c.pass(c.h.Lease)
}

func checkBatchEmpty(c *check) {
	c.claims()
	c.finishes()
	c.renews()
	c.lookups()
	c.forgets(long)
	ctx, cancel := c.calm()
	defer cancel()
	if n := len(c.store.Claim(ctx, []driver.ClaimRequest{})) +
		len(c.store.Finish(ctx, []driver.Finish{})); n != 0 {
		c.Errorf("empty batches have %d answers", n)
	}
}

// checkCancelled calls with a context that has ended before.
func checkCancelled(c *check) {
	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	fresh := []*owner{c.stranger(newID()), c.stranger(newID())}
	live := c.acquire(newID(), long, long)
	before := c.lookup(live.id)

	refused := func(call string, answers []driver.Answer, want int) {
		c.Helper()
		for i, a := range c.counted(call, answers, want) {
			if !errors.Is(a.Err, context.Canceled) {
				c.Errorf("%s under a canceled context: item %d answers %s and the error %v",
					call, i, describe(a), a.Err)
			}
		}
	}
	refused("Claim", c.store.Claim(ctx,
		[]driver.ClaimRequest{fresh[0].request(), fresh[1].request()}), 2)
	refused("Finish", c.store.Finish(ctx, []driver.Finish{live.change(driver.StateSucceeded)}), 1)
	refused("Renew", c.store.Renew(ctx, []driver.Renewal{live.renewal()}), 1)
	refused("Lookup", c.store.Lookup(ctx, []driver.ID{live.id}), 1)
	for i, err := range c.store.Forget(ctx, []driver.ID{fresh[0].id, live.id}, long) {
		if !errors.Is(err, context.Canceled) {
			c.Errorf("Forget under a canceled context: item %d answers %v", i, err)
		}
	}
	for _, o := range fresh {
		c.wantState("a key claimed under a canceled context", c.lookup(o.id), driver.StateAbsent)
	}
	c.wantUnchanged("calls under a canceled context", before, c.lookup(live.id))
}
