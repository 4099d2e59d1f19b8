package deduptest

import (
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// reference is the contract for one key in the fewest words. It has the answer that each call
// must give, with time reduced to "the lease has lapsed". The store chooses the fences, and the
// reference only insists that they grow.
type reference struct {
	state   driver.State
	token   driver.Token // the owner in progress, or later the writer of the end
	lapsed  bool
	late    bool // a caller that held no claim wrote the end
	attempt int
	fence   uint64
	newest  uint64 // largest fence ever seen
	floor   uint64 // owners up to this fence were forgotten
	gone    bool   // forgotten, and nothing has happened since
	danger  bool
	steps   string
	result  string
	from    driver.Origin // of the newest claim
	// doneOnly is Harness.DoneOnly: the store need not keep the rest.
	doneOnly bool
	// resent says that the store is behind a client that may send a claim twice.
	resent bool
}

func (r *reference) terminal() bool {
	return r.state == driver.StateSucceeded || r.state == driver.StateFailed
}

func (r *reference) heldBy(token driver.Token) bool {
	return r.state == driver.StateInProgress && r.token == token
}

// holds reports whether token has the live or lapsed claim. The fence tells apart two claims of one
// token.
func (r *reference) holds(token driver.Token, fence uint64) bool {
	return r.heldBy(token) && (fence == 0 || fence == r.fence)
}

// shown returns the state that callers see.
func (r *reference) shown() driver.State {
	if r.state == driver.StateInProgress && r.lapsed && r.danger {
		return driver.StateUncertain
	}
	return r.state
}

// stands returns the name of the state, and "lapsed" for a lapsed claim.
func (r *reference) stands() string {
	if r.shown() == driver.StateInProgress && r.lapsed {
		return "lapsed"
	}
	return r.shown().String()
}

// claim compares the answer to a claim with the contract, and updates the reference.
func (r *reference) claim(req driver.ClaimRequest, a driver.Answer) error {
	token, want := req.Token, driver.Acquired
	mine := r.heldBy(token)
	switch {
	case r.terminal():
		want = driver.Duplicate
	case mine:
	case r.state == driver.StateInProgress && !r.lapsed && !r.givesWay(req):
		want = driver.InFlight
	case r.shown() == driver.StateUncertain && (!req.TakeUncertain || r.leftBy(req)):
		want = driver.Uncertain
	case r.leftBy(req):
		return r.left(a)
	}
	// A server's client may send a claim again by itself. It then finds its own first claim: Mine.
	again := r.resent && want == driver.Acquired && a.Mine
	if a.Outcome != want || a.Mine != mine && !again {
		return fmt.Errorf("want %v, mine %t, got %s", want, mine, describe(a))
	}
	if want != driver.Acquired || mine {
		return r.matches(a.Record)
	}
	if a.Record.Fence <= r.newest {
		return fmt.Errorf("fence %d does not grow over %d", a.Record.Fence, r.newest)
	}
	if r.state == driver.StateAbsent {
		r.attempt = 0
	}
	r.state, r.token, r.lapsed, r.late, r.gone, r.result = driver.StateInProgress, token, false,
		false, false, ""
	r.from = req.Origin
	r.attempt++
	r.fence, r.newest = a.Record.Fence, a.Record.Fence
	return r.matches(a.Record)
}

// leftBy reports whether req leaves the key alone because it has an attempt.
func (r *reference) leftBy(req driver.ClaimRequest) bool {
	return req.OnlyNew && r.state != driver.StateAbsent && r.attempt > 0
}

// left compares the answer to a request that left the key alone although it was free.
func (r *reference) left(a driver.Answer) error {
	if a.Outcome != driver.InFlight || a.Mine || a.Record.Remaining > 0 {
		return fmt.Errorf("want in_flight and nothing remaining, got %s, remaining %v", describe(a),
			a.Record.Remaining)
	}
	if !r.lapsed {
		a.Record.Remaining = long // the rest of a live lease that gives way
	}
	return r.matches(a.Record)
}

// givesWay reports whether req takes over a live claim: it asks for that, and the claim is of an
// older generation for the same partition, without danger.
func (r *reference) givesWay(req driver.ClaimRequest) bool {
	o, n := r.from, req.Origin
	return req.TakeOverOlderGeneration && !r.danger && o.Source != "" && o.Source == n.Source &&
		o.Partition == n.Partition &&
		0 < o.Generation && o.Generation < n.Generation
}

// renew compares the answer to a renewal with the contract, and updates the reference.
func (r *reference) renew(c driver.Renewal, a driver.Answer) error {
	held := r.holds(c.Token, c.Fence)
	if a.Held != held {
		return fmt.Errorf("want held=%t, got %s", held, describe(a))
	}
	if held {
		r.lapsed, r.danger = false, r.danger || c.Irreversible
		if len(c.Steps) >= len(r.steps) {
			r.steps = string(c.Steps)
		}
	}
	return nil
}

// finish compares the answer to an end with the contract, and updates the reference.
func (r *reference) finish(c driver.Finish, a driver.Answer) error {
	held, written := false, false
	switch {
	case r.holds(c.Token, c.Fence):
		held, written = true, true
		r.end(c, false)
	case r.state == r.reach(c) && r.token == c.Token:
		held, written = true, true
		if r.late || !time.Now().Before(c.Until) {
			held = a.Held // either is right for an end that is late
		}
	case c.EffectApplied && r.mayLand(c.Fence):
		written = true
		if r.state == driver.StateAbsent {
			r.attempt, r.fence = c.Attempt, c.Fence
		}
		r.end(c, true)
	}
	if r.doneOnly && r.state == driver.StateSucceeded && c.State == r.state &&
		time.Now().Before(c.Until) {
		// The store cannot tell whose success it was, and may take it for the caller's own.
		held, written = a.Held, a.Written
	}
	if a.Held != held || a.Written != written {
		return fmt.Errorf("want held=%t written=%t, got %s", held, written, describe(a))
	}
	return r.matches(a.Record)
}

// reach returns the state in which c leaves the key.
func (r *reference) reach(c driver.Finish) driver.State {
	if c.State == driver.StateReleased && r.danger && !c.NotStarted {
		return driver.StateUncertain
	}
	return c.State
}

func (r *reference) end(c driver.Finish, late bool) {
	r.state, r.token, r.late, r.gone = r.reach(c), c.Token, late, false
	r.danger = r.state == driver.StateUncertain
	if c.NotAttempted {
		r.attempt--
	}
	if r.terminal() {
		r.steps = ""
	}
	if r.result = string(c.Result); r.doneOnly && r.state == driver.StateSucceeded {
		r.result = ""
	}
}

func (r *reference) mayLand(fence uint64) bool {
	return !r.terminal() && (fence == 0 || fence > r.floor)
}

// disputed reports whether the contract leaves open what a landed change does: its
// owner was forgotten, and something has happened to the key since.
func (r *reference) disputed(c driver.Finish) bool {
	return c.EffectApplied && c.Fence != 0 && c.Fence <= r.floor && !r.gone && !r.terminal() &&
		!r.holds(c.Token, c.Fence)
}

// forget compares the answer to Forget with the contract, and updates the reference.
func (r *reference) forget(live bool) error {
	want := r.state == driver.StateInProgress && !r.lapsed
	if live != want {
		return fmt.Errorf("want in flight %t, got %t", want, live)
	}
	if !live && r.state != driver.StateAbsent {
		// After an effect that landed late, the store chooses which owner's fence the key
		// keeps, and so which owners it refuses from now on.
		certain := !r.late
		r.floor = r.newest
		r.expire()
		r.gone = certain
	}
	return nil
}

// expire makes the key absent. Only newest, floor and the kind of the store outlive it.
func (r *reference) expire() {
	*r = reference{newest: r.newest, floor: r.floor, doneOnly: r.doneOnly, resent: r.resent}
}

// matches compares a record with the reference. After an effect that landed late the
// store may show the attempt and fence of either owner.
func (r *reference) matches(rec driver.Record) error {
	if rec.State != r.shown() {
		return fmt.Errorf("want state %v, got %v", r.shown(), rec.State)
	}
	if rec.Irreversible != r.danger || string(rec.Steps) != r.steps {
		return fmt.Errorf("want danger %t and steps %q, got %t and %q", r.danger, r.steps,
			rec.Irreversible, rec.Steps)
	}
	blank := r.doneOnly && r.state == driver.StateSucceeded
	if r.state != driver.StateAbsent && !blank && !r.late &&
		(rec.Attempt != r.attempt || rec.Fence != r.fence) {
		return fmt.Errorf("want attempt %d and fence %d, got %d and %d", r.attempt, r.fence,
			rec.Attempt, rec.Fence)
	}
	if string(rec.Result) != r.result {
		return fmt.Errorf("want result %q, got %q", r.result, rec.Result)
	}
	if r.shown() == driver.StateInProgress && r.lapsed != (rec.Remaining <= 0) {
		return fmt.Errorf("want lapsed %t, got remaining %v", r.lapsed, rec.Remaining)
	}
	return nil
}
