package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// Two workers get the same message. The test runs every order in which their calls reach the store
// and their effects happen. A limited number of faults occur at any place: a worker dies, a reply
// is lost, a renewal is due, or a lease lapses. The Deduper, its renewer and the store are the real
// ones, in fake time. The test only decides when a call goes through.

// plan is what a worker's handler does.
type plan string

const (
	plain     plan = "plain"     // has its effect
	failing   plan = "failing"   // fails at its first delivery, later it has its effect
	permanent plan = "permanent" // fails for good, without an effect
	dares     plan = "dares"     // declares danger, has its effect
	doubts    plan = "doubts"    // declares danger, has its effect, and fails: nobody can know
)

const (
	deliveries = 2
	tick       = time.Second // per step, so that retries with backoff make progress
	worldLease = time.Hour   // many ticks
	worldThird = worldLease/3 + time.Minute
)

// pausePoint is one thing that a worker is about to do.
type pausePoint struct {
	who  *gated
	name string
	pass chan bool // false when its worker is dead
	lose bool      // its reply is lost
}

// world is one schedule under way.
type world struct {
	store   dedup.Store
	id      driver.ID
	workers []*gated

	mu       sync.Mutex
	waiting  []*pausePoint
	owner    driver.Token // the token of the last claim that was acquired
	effects  int
	declared bool // a danger is on record, and nobody has resolved it
	ended    *dedup.Record
	fence    uint64
	broken   []string

	crashes, lapses int
}

func (w *world) breaks(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

func (w *world) look() dedup.Record {
	return w.store.Lookup(context.Background(), []driver.ID{w.id})[0].Record
}

// gated is one worker: its store lets a call through when the schedule says so.
type gated struct {
	dedup.Store
	w    *world
	name string
	plan plan
	d    *dedup.Deduper

	dead, done bool
	free       bool            // nothing waits
	asked      bool            // Resolve has answered that there was no effect
	running    context.Context // of its handler
}

var errDead = &dedup.InputError{Field: "worker", Reason: "is dead"} // not worth a retry

// wait returns the pausePoint once it is passed, or false when the worker has died.
func (g *gated) wait(what string) (*pausePoint, bool) {
	p := &pausePoint{who: g, name: g.name + " " + what, pass: make(chan bool, 1)}
	g.w.mu.Lock()
	switch {
	case g.dead:
		p.pass <- false
	case g.free:
		p.pass <- true
	default:
		g.w.waiting = append(g.w.waiting, p)
	}
	g.w.mu.Unlock()
	return p, <-p.pass
}

func (g *gated) Claim(_ context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	return g.call("claims", func(ctx context.Context) []driver.Answer {
		answers := g.Store.Claim(ctx, reqs)
		if answers[0].Outcome == dedup.Acquired {
			g.w.owner = reqs[0].Token
		}
		return answers
	})
}

func (g *gated) Renew(_ context.Context, renewals []driver.Renewal) []driver.Answer {
	what := "renews"
	if renewals[0].Irreversible {
		what = "declares"
	}
	return g.call(what, func(ctx context.Context) []driver.Answer {
		c := change{token: renewals[0].Token, danger: renewals[0].Irreversible}
		return g.w.change(c, func() []driver.Answer { return g.Store.Renew(ctx, renewals) })
	})
}

func (g *gated) Finish(_ context.Context, changes []driver.Finish) []driver.Answer {
	return g.call("ends "+changes[0].State.String(), func(ctx context.Context) []driver.Answer {
		c := change{token: changes[0].Token, notStarted: changes[0].NotStarted,
			landed: changes[0].EffectApplied}
		return g.w.change(c, func() []driver.Answer { return g.Store.Finish(ctx, changes) })
	})
}

// call executes do when the schedule says so, even if its caller has given up by then.
func (g *gated) call(what string, do func(context.Context) []driver.Answer) []driver.Answer {
	p, alive := g.wait(what)
	if !alive {
		return []driver.Answer{{Err: errDead}}
	}
	answers := do(context.Background())
	if p.lose {
		return []driver.Answer{{Err: errNet}}
	}
	return answers
}

// change is the content of a renewal or an end.
type change struct {
	token                      driver.Token
	danger, notStarted, landed bool
}

// change executes a renewal or an end and looks at what it has done to the key.
func (w *world) change(c change, do func() []driver.Answer) []driver.Answer {
	before := w.look()
	answers := do()
	after := w.look()
	held := answers[0].Held
	switch {
	case c.token == w.owner && held && c.danger:
		w.declared = true
	case c.token == w.owner && held && c.notStarted:
		w.declared = false
	case c.token == w.owner:
	case held:
		w.breaks("a late owner was told that it holds the key")
	case c.landed && after.State == driver.StateSucceeded && before.State != driver.StateFailed:
	case !reflect.DeepEqual(before, after):
		w.breaks("a late owner has changed %+v to %+v", before, after)
	}
	return answers
}

// live runs a worker: it gets the message again until it may acknowledge it.
func (g *gated) live(ctx context.Context) {
	defer func() {
		g.w.mu.Lock()
		g.done = true
		g.w.mu.Unlock()
	}()
	for n := range deliveries {
		if g.gone() {
			return
		}
		_, err := dedup.Do(ctx, g.d, "k", func(ctx context.Context) (string, error) {
			return g.handle(ctx, n)
		})
		if err == nil && !g.gone() {
			if state := g.w.look().State; state != driver.StateSucceeded {
				g.w.breaks("%s has acknowledged a key that is %v", g.name, state)
			}
			return
		}
		var failed *dedup.FailedError
		if errors.As(err, &failed) || g.gone() {
			return
		}
	}
}

func (g *gated) gone() bool {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	return g.dead
}

func (g *gated) handle(ctx context.Context, delivery int) (string, error) {
	if g.w.declared && !g.asked {
		g.w.breaks("%s has begun after a danger without asking", g.name)
	}
	g.asked = false
	g.runs(ctx)
	defer g.rests()
	switch {
	case g.plan == failing && delivery == 0:
		return "", errNet
	case g.plan == permanent:
		return "", dedup.Permanent(errNet)
	case g.plan == dares, g.plan == doubts:
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return "", dedup.NotStarted(err)
		}
	}
	if _, alive := g.wait("has its effect"); !alive {
		return "", errNet
	}
	g.w.mu.Lock()
	g.w.effects++
	g.w.mu.Unlock()
	if g.plan == doubts {
		return "", errNet
	}
	return "v", nil
}

func (g *gated) runs(ctx context.Context) {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	g.running = ctx
}

func (g *gated) rests() {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	g.running = nil
}

// resolve asks the downstream, which knows whether the effect has happened.
func (g *gated) resolve(context.Context, string, dedup.Record) (dedup.Resolution, error) {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	if g.w.effects > 0 {
		return dedup.Happened([]byte("v")), nil
	}
	g.asked = true
	return dedup.DidNotHappen(), nil
}

func (w *world) join(t *testing.T, name string, p plan) *gated {
	g := &gated{Store: w.store, w: w, name: name, plan: p}
	g.d = newDeduper(t, g, func(cfg *dedup.Config) {
		cfg.LeaseTTL, cfg.Window, cfg.StoreTimeout = worldLease, 100*worldLease,
			worldLease-time.Minute
		cfg.Resolve = g.resolve
	})
	w.workers = append(w.workers, g)
	return g
}

// move is one thing that may happen next.
type move struct {
	name    string
	trouble bool
	do      func()
}

// moves returns all possible moves, in an order that depends only on the state.
func (w *world) moves(left int) (out []move) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.waiting, func(a, b *pausePoint) int {
		return strings.Compare(a.name, b.name)
	})
	for _, p := range w.waiting {
		out = append(out, move{name: p.name, do: func() { w.release(p, true) }})
	}
	if left == 0 || len(out) == 0 {
		return out
	}
	trouble := func(name string, do func()) { out = append(out, move{name, true, do}) }
	for _, p := range w.waiting {
		if !strings.HasSuffix(p.name, "effect") {
			trouble(p.name+", and hears nothing", func() { p.lose = true; w.release(p, true) })
		}
	}
	for _, g := range w.workers {
		if !g.dead && !g.done {
			trouble(g.name+" dies", func() { w.crash(g) })
		}
	}
	if slices.ContainsFunc(w.workers, func(g *gated) bool {
		return g.running != nil && g.running.Err() == nil
	}) {
		trouble("a third of a lease passes", func() { time.Sleep(worldThird) })
	}
	trouble("leases lapse", func() { w.lapses++; time.Sleep(worldLease + time.Second) })
	return out
}

func (w *world) release(p *pausePoint, alive bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = slices.DeleteFunc(w.waiting, func(q *pausePoint) bool { return q == p })
	p.pass <- alive
}

func (w *world) crash(g *gated) {
	w.mu.Lock()
	g.dead = true
	w.crashes++
	mine := slices.DeleteFunc(slices.Clone(w.waiting),
		func(p *pausePoint) bool { return p.who != g })
	w.mu.Unlock()
	for _, p := range mine {
		w.release(p, false)
	}
}

// check tests what must hold after every step.
func (w *world) check() {
	rec := w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	bad := func(format string, args ...any) {
		w.broken = append(w.broken, fmt.Sprintf(format, args...))
	}
	valid := 0
	for _, g := range w.workers {
		if g.running != nil && g.running.Err() == nil && !g.dead {
			valid++
		}
	}
	if valid > 1 {
		bad("two handlers run under valid leases")
	}
	if rec.State == driver.StateSucceeded && w.effects == 0 {
		bad("a key is on record without an effect")
	}
	if rec.Fence < w.fence {
		bad("the fence has gone from %d to %d", w.fence, rec.Fence)
	}
	w.fence = max(w.fence, rec.Fence)
	rec.Age, rec.Remaining = 0, 0
	if w.ended != nil && !reflect.DeepEqual(*w.ended, rec) {
		bad("what had ended has changed: %+v to %+v", *w.ended, rec)
	}
	if rec.State == driver.StateSucceeded || rec.State == driver.StateFailed {
		w.ended, w.declared = &rec, false
	}
}

// verdict tests what must hold once there are no more faults and a third worker finishes the key.
func (w *world) verdict(t *testing.T) {
	last := w.join(t, "C", plain)
	last.free = true
	for try := 0; try < 5; try++ {
		_, err := dedup.Do(t.Context(), last.d, "k", func(ctx context.Context) (string, error) {
			return last.handle(ctx, 1)
		})
		var failed *dedup.FailedError
		if err == nil || errors.As(err, &failed) {
			break
		}
		time.Sleep(worldLease + time.Second)
	}
	w.check()
	rec := w.look()
	if rec.State != driver.StateSucceeded && rec.State != driver.StateFailed {
		w.breaks("without troubles the key stays %v", rec.State)
	}
	// A lapse explains one more effect. A crash also does, unless both plans can be resolved.
	explained := 1 + w.lapses
	if a, b := w.workers[0].plan, w.workers[1].plan; !a.asks() || !b.asks() {
		explained += w.crashes
	}
	if w.effects > explained {
		w.breaks("%d effects, %d are explained", w.effects, explained)
	}
}

func (p plan) asks() bool { return p == dares || p == doubts }

// choice is the move that was taken at one step, of how many possible ones.
type choice struct {
	taken, of int
	name      string
}

// liveOnce runs one schedule: first the given choices, then always the first possible one. It
// returns the choices it has made, and what has broken.
func liveOnce(t *testing.T, wrap func(dedup.Store) dedup.Store, a,
	b plan, given []choice) (made []choice, broken string) {
	synctest.Test(t, func(t *testing.T) {
		id, err := driver.NewID("test", "", "k")
		require.NoError(t, err)
		w := &world{store: wrap(dedup.Memory(10)), id: id}
		for i, p := range []plan{a, b} {
			g := w.join(t, string(rune('A'+i)), p)
			go g.live(t.Context())
		}
		left := troubles
		for {
			time.Sleep(tick)
			synctest.Wait()
			w.check()
			moves := w.moves(left)
			if len(moves) == 0 || len(w.broken) > 0 {
				break
			}
			c := choice{of: len(moves)}
			if len(made) < len(given) {
				c.taken = given[len(made)].taken
				was := given[len(made)]
				require.Equal(t, c.of, was.of, "the same choices have led elsewhere")
				require.False(t, was.name != "" && was.name != moves[c.taken].name,
					"the same choices have led elsewhere: %q of %d, now %q of %d", was.name, was.of,
					moves[c.taken].name, c.of)
			}
			m := moves[c.taken]
			c.name = m.name
			made = append(made, c)
			if m.trouble {
				left--
			}
			m.do()
		}
		if len(w.broken) == 0 {
			w.verdict(t)
		} else { // cut short
			for _, g := range w.workers {
				w.crash(g)
			}
		}
		broken = strings.Join(w.broken, "; ")
	})
	return made, broken
}

// next is the schedule after this one, nil after the last.
func next(made []choice) []choice {
	for len(made) > 0 {
		last := &made[len(made)-1]
		if last.taken+1 < last.of {
			given := slices.Clone(made)
			given[len(given)-1] = choice{taken: last.taken + 1, of: last.of}
			return given
		}
		made = made[:len(made)-1]
	}
	return nil
}

// explore runs every schedule, or stops at the first that breaks something and describes it.
func explore(t *testing.T, wrap func(dedup.Store) dedup.Store, a, b plan) (schedules int,
	broken string) {
	for given := []choice{}; given != nil; {
		made, broken := liveOnce(t, wrap, a, b, given)
		schedules++
		if broken != "" {
			var way []string
			for _, c := range made {
				way = append(way, c.name)
			}
			return schedules, broken + ": " + strings.Join(way, ", ")
		}
		given = next(made)
	}
	return schedules, ""
}

func TestInterleavings(t *testing.T) {
	pairs := [][2]plan{{plain, plain}, {failing, plain}, {permanent, plain}, {dares, dares},
		{doubts, dares}, {dares, failing}}
	for _, pair := range pairs {
		t.Run(string(pair[0]+" "+pair[1]), func(t *testing.T) {
			t.Parallel()
			schedules, broken := explore(t, func(s dedup.Store) dedup.Store {
				return s
			}, pair[0], pair[1])
			assert.Empty(t, broken)
			t.Logf("%d schedules", schedules)
		})
	}
}

// ownerless is a store that treats every renewal and end as the owner's.
type ownerless struct {
	dedup.Store
	owner driver.Token
}

func (s *ownerless) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := s.Store.Claim(ctx, reqs)
	if answers[0].Outcome == dedup.Acquired {
		s.owner = reqs[0].Token
	}
	return answers
}

func (s *ownerless) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	renewals = slices.Clone(renewals)
	renewals[0].Token = s.owner
	return s.Store.Renew(ctx, renewals)
}

func (s *ownerless) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	changes = slices.Clone(changes)
	changes[0].Token = s.owner
	return s.Store.Finish(ctx, changes)
}

// careless is a store that lets an uncertain key run again like a released one.
type careless struct{ dedup.Store }

func (s careless) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := s.Store.Claim(ctx, reqs)
	if answers[0].Record.Irreversible && !answers[0].Mine && answers[0].Outcome == dedup.Acquired {
		answers[0].Record.Irreversible = false
	}
	return answers
}

// hasty is a store that puts a key on record when it is claimed.
type hasty struct{ dedup.Store }

func (s hasty) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := s.Store.Claim(ctx, reqs)
	if answers[0].Outcome == dedup.Acquired {
		s.Finish(ctx, []driver.Finish{{ID: reqs[0].ID, Token: reqs[0].Token,
			State: driver.StateSucceeded, Window: time.Hour}})
	}
	return answers
}

// open is a store in which no lease is respected.
type open struct{ dedup.Store }

func (s open) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := s.Store.Claim(ctx, reqs)
	if answers[0].Outcome == dedup.InFlight {
		answers[0] = driver.Answer{Outcome: dedup.Acquired, Record: answers[0].Record}
	}
	return answers
}

// The schedules find the faults of broken stores.
func TestInterleavingsFindBrokenStores(t *testing.T) {
	rows := map[string]struct {
		wrap func(dedup.Store) dedup.Store
		a, b plan
		want string
	}{
		"no owner check": {func(s dedup.Store) dedup.Store {
			return &ownerless{Store: s}
		}, failing, plain, "a late owner"},
		"danger is forgotten": {func(s dedup.Store) dedup.Store {
			return careless{s}
		}, dares, dares, "without asking"},
		"record first": {func(s dedup.Store) dedup.Store {
			return hasty{s}
		}, plain, plain, "on record without an effect"},
		"leases are ignored": {func(s dedup.Store) dedup.Store {
			return open{s}
		}, plain, plain, "a late owner was told that it holds the key"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			schedules, broken := explore(t, row.wrap, row.a, row.b)
			assert.Contains(t, broken, row.want, "after %d schedules: %q", schedules, broken)
			t.Logf("schedule %d: %s", schedules, broken)
		})
	}
}
