package deduptest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/onceward/onceward/dedup/driver"
)

const walks = 48 // seeds 1 to walks, each on a key of its own

// checkRandomWalk takes one key through random calls by three workers and compares
// every answer with the reference. The seeds are fixed, and a failure prints its seed
// and its steps.
func checkRandomWalk(c *check) {
	errs := make([]error, walks)
	var done sync.WaitGroup
	for i := range errs {
		walk := func() { _, errs[i] = c.walk(uint64(i) + 1) }
		if c.h.Advance != nil {
			walk() // one clock for all: side by side they would lapse each other's leases
			continue
		}
		done.Go(walk)
	}
	done.Wait()
	for _, err := range errs {
		if err != nil {
			c.Error(err)
		}
	}
}

// walker is one random walk.
type walker struct {
	c      *check
	risky  bool // half of the walks never declare danger: they get further
	moves  bool // in half of the walks the claims have generations
	waits  bool // in a third of the walks some claims have OnlyNew
	rng    *rand.Rand
	id     driver.ID
	model  reference
	actors []*owner
	way    []string // what was done in which state, for the report
}

func (c *check) walk(seed uint64) (*walker, error) {
	w := &walker{c: c, risky: seed%2 == 0, moves: seed%4 < 2, waits: seed%3 == 1,
		rng: rand.New(rand.NewPCG(seed, 0)), id: newID()}
	w.model.doneOnly, w.model.resent = c.h.DoneOnly, c.h.Advance == nil
	for range 3 {
		w.actors = append(w.actors, c.stranger(w.id))
	}
	for step := range c.h.WalkSteps {
		err := w.step()
		if err == nil {
			err = w.look()
		}
		if err != nil {
			return w, fmt.Errorf("seed %d, step %d: %s: %w", seed,
				step+1, strings.Join(w.way, ", "), err)
		}
	}
	return w, nil
}

// step makes one random call. A claim that is to lapse does so at once, so that the model always
// knows which claim is live.
func (w *walker) step() error {
	actor := w.rng.IntN(len(w.actors))
	o := w.actors[actor]
	pick := w.rng.IntN(100)
	say := func(what string, more ...any) {
		w.way = append(w.way, fmt.Sprintf("%s: %d ", w.model.stands(), actor)+
			fmt.Sprintf(what, more...))
	}
	switch {
	case pick < 40:
		req := w.randomRequest(o, pick < 10)
		say("claims, lapse=%t, take=%t, first=%t, newer=%t", req.Lease < long, req.TakeUncertain,
			req.OnlyNew, w.model.givesWay(req))
		return w.claim(o, req)
	case pick < 60:
		change := w.randomRenewal(o)
		say("renews, lapse=%t, danger=%t, steps=%d", change.Lease < long, change.Irreversible,
			len(change.Steps))
		return w.renew(o, change)
	case pick < 90:
		change := w.randomChange(o)
		if w.model.disputed(change) {
			return nil
		}
		// A store does not forget an uncertain key as soon as its window or hold is over.
		expire := w.rng.IntN(4) == 0 && w.model.reach(change) != driver.StateUncertain
		say("ends %v, landed=%t, not begun=%t, unused=%t, expire=%t", change.State, change.EffectApplied,
			change.NotStarted, change.NotAttempted, expire)
		return w.finish(o, change, expire)
	default:
		say("forgets")
		return w.forget()
	}
}

func (w *walker) forget() error {
	err := w.c.forgets(long, w.id)[0]
	if err != nil && !errors.Is(err, driver.ErrInFlight) {
		return err
	}
	return w.model.forget(err != nil)
}

// randomRequest returns the actor's last claim again, or a new attempt.
func (w *walker) randomRequest(o *owner, lapse bool) driver.ClaimRequest {
	take := w.rng.IntN(3) == 0
	if w.rng.IntN(3) > 0 {
		*o = *w.c.stranger(w.id)
	}
	req := o.request()
	req.TakeUncertain = take
	if w.moves {
		req.TakeOverOlderGeneration = w.rng.IntN(2) == 0
		req.Origin = driver.Origin{Source: "group/topic", Partition: int32(w.rng.IntN(4) / 3),
			Generation: int32(w.rng.IntN(4))}
		if w.c.h.OnePartition {
			req.Origin.Partition = 0
		}
	}
	req.OnlyNew = w.waits && w.rng.IntN(3) == 0
	if lapse {
		req.Lease = w.c.h.Lease
	}
	return req
}

// claim asks for the key.
func (w *walker) claim(o *owner, req driver.ClaimRequest) error {
	lapse := req.Lease < long
	sent := w.c.now()
	a := w.c.claims(req)[0]
	if a.Err != nil {
		return a.Err
	}
	if err := w.model.claim(req, a); err != nil {
		return err
	}
	if a.Outcome != driver.Acquired {
		return nil
	}
	o.granted(req.Lease, a, sent)
	if lapse && !a.Mine {
		w.c.pass(w.c.h.Lease)
		w.model.lapsed = true
	}
	return nil
}

// randomRenewal returns a renewal that may lapse at once, declare danger, or have steps. It may
// have fewer steps than the key, as if it came late.
func (w *walker) randomRenewal(o *owner) driver.Renewal {
	renewal := o.renewal()
	if w.rng.IntN(3) == 0 {
		renewal.Lease = w.c.h.Lease
	}
	renewal.Irreversible = w.risky && w.rng.IntN(2) == 0
	if w.rng.IntN(2) == 0 {
		renewal.Steps = bytes.Repeat([]byte{byte('a' + len(w.way)%26)}, 1+w.rng.IntN(8))
	}
	return renewal
}

func (w *walker) renew(o *owner, change driver.Renewal) error {
	sent := w.c.now()
	a := w.c.renews(change)[0]
	if a.Err != nil {
		return a.Err
	}
	if a.Held {
		o.until = sent.Add(change.Lease)
	}
	err := w.model.renew(change, a)
	if err == nil && a.Held && change.Lease < long {
		w.c.pass(w.c.h.Lease)
		w.model.lapsed = true
	}
	return err
}

func (w *walker) randomChange(o *owner) driver.Finish {
	// Most ends are releases, because a walk learns little once the key is in a terminal state.
	change := o.change(driver.StateReleased)
	switch w.rng.IntN(5) {
	case 0:
		change.State = driver.StateSucceeded
	case 1:
		change.State, change.EffectApplied = driver.StateSucceeded, true
	case 2:
		if !w.c.h.SeenOnly {
			change.State = driver.StateFailed
		}
	}
	if change.State == driver.StateReleased {
		switch w.rng.IntN(3) {
		case 0:
			change.NotStarted = true
		case 1:
			change.NotAttempted = true
		}
	} else {
		change.Result = fmt.Appendf(nil, "%s %d", change.State, w.rng.IntN(1000))
	}
	return change
}

// finish ends the attempt, and lets the end be forgotten when expire is set and the end
// was new.
func (w *walker) finish(o *owner, change driver.Finish, expire bool) error {
	if expire = expire && (!w.c.h.OneWindow || change.State == driver.StateReleased); expire {
		change.Window, change.Hold = w.c.h.Lease, w.c.h.Lease
	}
	fresh := w.model.state != w.model.reach(change) || w.model.token != change.Token
	a := w.c.finishes(change)[0]
	if a.Err != nil {
		return a.Err
	}
	o.gaveUp(change, a)
	err := w.model.finish(change, a)
	if err == nil && expire && fresh && a.Written {
		w.c.pass(w.c.h.Lease)
		w.model.expire()
	}
	return err
}

// look compares the stored record with the model.
func (w *walker) look() error {
	a := w.c.lookups(w.id)[0]
	if a.Err != nil {
		return a.Err
	}
	if err := w.model.matches(a.Record); err != nil {
		return fmt.Errorf("lookup: %w", err)
	}
	return nil
}
