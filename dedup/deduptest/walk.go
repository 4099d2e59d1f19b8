package deduptest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/onceward/onceward/dedup"
)

const (
	walks = 16  // seeds 1 to walks, each on a key of its own
	steps = 160 // of each walk
)

// checkRandomWalk takes one key through random calls by three workers and compares
// every answer with the reference. The seeds are fixed, and a failure prints its seed
// and its way.
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
	rng    *rand.Rand
	id     dedup.ID
	model  reference
	actors []*owner
	way    []string // what was done in which state, for the report
}

func (c *check) walk(seed uint64) (*walker, error) {
	w := &walker{c: c, rng: rand.New(rand.NewPCG(seed, 0)), id: newID()}
	for range 3 {
		w.actors = append(w.actors, c.stranger(w.id))
	}
	for step := range steps {
		err := w.step()
		if err == nil {
			err = w.look()
		}
		if err != nil {
			return w, fmt.Errorf("seed %d, step %d: %s: %w", seed, step+1, strings.Join(w.way, ", "), err)
		}
	}
	return w, nil
}

// step makes one random call. Whatever has to lapse does so at once, so that the model
// always knows what is live.
func (w *walker) step() error {
	actor := w.rng.IntN(len(w.actors))
	o := w.actors[actor]
	pick := w.rng.IntN(100)
	say := func(what string, more ...any) {
		w.way = append(w.way, fmt.Sprintf("%s: %d ", w.model.stands(), actor)+fmt.Sprintf(what, more...))
	}
	switch {
	case pick < 40:
		lapse := pick < 10
		say("claims, lapse=%t", lapse)
		return w.claim(o, lapse)
	case pick < 52:
		lapse := pick < 44
		say("renews, lapse=%t", lapse)
		return w.renew(o, lapse)
	case pick < 90:
		change := w.randomChange(o)
		if w.model.disputed(change) {
			return nil
		}
		expire := w.rng.IntN(4) == 0
		say("ends %v, landed=%t, expire=%t", change.State, change.Landed, expire)
		return w.finish(change, expire)
	default:
		say("forgets")
		return w.forget()
	}
}

func (w *walker) forget() error {
	err := w.c.forgets(long, w.id)[0]
	if err != nil && !errors.Is(err, dedup.ErrInFlight) {
		return err
	}
	return w.model.forget(err != nil)
}

// claim sends the actor's last claim again, or makes a new attempt.
func (w *walker) claim(o *owner, lapse bool) error {
	if w.rng.IntN(3) > 0 {
		*o = *w.c.stranger(w.id)
	}
	req := o.request()
	if lapse {
		req.Lease = w.c.h.Lease
	}
	a := w.c.claims(req)[0]
	if a.Err != nil {
		return a.Err
	}
	if err := w.model.claim(o.token, a); err != nil {
		return err
	}
	if a.Outcome != dedup.Acquired {
		return nil
	}
	o.attempt, o.fence = a.Record.Attempt, a.Record.Fence
	if lapse && !a.Mine {
		w.c.pass(w.c.h.Lease)
		w.model.lapsed = true
	}
	return nil
}

func (w *walker) renew(o *owner, lapse bool) error {
	change := o.change(dedup.StateAbsent)
	if lapse {
		change.Lease = w.c.h.Lease
	}
	a := w.c.renews(change)[0]
	if a.Err != nil {
		return a.Err
	}
	err := w.model.renew(o.token, a)
	if err == nil && a.Held && lapse {
		w.c.pass(w.c.h.Lease)
		w.model.lapsed = true
	}
	return err
}

func (w *walker) randomChange(o *owner) dedup.Change {
	// Mostly released: a walk that has reached a terminal state learns little there.
	change := o.change(dedup.StateReleased)
	switch w.rng.IntN(5) {
	case 0:
		change.State = dedup.StateSucceeded
	case 1:
		change.State, change.Landed = dedup.StateSucceeded, true
	case 2:
		change.State = dedup.StateFailed
	}
	if change.State != dedup.StateReleased {
		change.Result = fmt.Appendf(nil, "%s %d", change.State, w.rng.IntN(1000))
	}
	return change
}

// finish ends the attempt, and lets the end be forgotten when expire is set and the end
// was new.
func (w *walker) finish(change dedup.Change, expire bool) error {
	if expire {
		change.Window, change.Hold = w.c.h.Lease, w.c.h.Lease
	}
	fresh := w.model.state != change.State || w.model.token != change.Token
	a := w.c.finishes(change)[0]
	if a.Err != nil {
		return a.Err
	}
	err := w.model.finish(change, a)
	if err == nil && expire && fresh && a.Written {
		w.c.pass(w.c.h.Lease)
		w.model.expire()
	}
	return err
}

// look compares the key as it is stored.
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
