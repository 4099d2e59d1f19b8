package redisadapter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/redisadapter/internal/wire"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/preflight"
)

// ErrAmnesia: the server has lost claims or records, or may have. A claim is Unknown
// with it while [FailClosed] stands. A key that is on record still answers Duplicate.
var ErrAmnesia = wire.ErrAmnesia

// Amnesia is what happens to claims when the server has lost data.
type Amnesia uint8

const (
	// GuardOff looks for nothing, needs no canary and costs nothing. It is the default:
	// a server that comes back empty then grants every redelivered message again.
	GuardOff Amnesia = iota
	// FailClosed grants no claim: it is Unknown with [ErrAmnesia], until
	// Options.AmnesiaFor is over or an operator calls [ClearAmnesia]. New accepts a server
	// that may evict keys only with it: see Options.AllowEviction.
	FailClosed
	// AllowAndFlag grants claims and reports each batch of them: in a finding with the code
	// flagged_claims, and in Health.Flagged.
	AllowAndFlag
	// AskSecondary asks Options.Secondary about each claim before it is granted.
	AskSecondary
)

// String returns the lower-case name.
func (a Amnesia) String() string {
	switch a {
	case GuardOff:
		return "off"
	case FailClosed:
		return "fail_closed"
	case AllowAndFlag:
		return "allow_and_flag"
	case AskSecondary:
		return "ask_secondary"
	}
	return fmt.Sprintf("amnesia(%d)", uint8(a))
}

// SecondaryStore is where [AskSecondary] looks, such as another [dedup.Store].
type SecondaryStore interface {
	// Lookup answers per ID, in order, like that of dedup.Store.
	Lookup(ctx context.Context, ids []dedup.ID) []dedup.Answer
}

const (
	// defaultSuspectFor is how long claims are refused after a failover or restart that
	// kept the canary: replication lags by less than a second on a healthy link, a
	// failover takes a few, and appendfsync everysec may lose two.
	defaultSuspectFor = 2 * time.Second

	// rereadAfter is how often a store that refuses claims looks whether it may stop.
	rereadAfter = 500 * time.Millisecond
	// remarkAfter is how often a loss that continues (evictions) is written down again.
	remarkAfter = time.Minute
)

// guard knows whether the server has lost data. All times are on our monotonic clock;
// the time of a loss is kept in the canaries, by the server's clock, so that all
// processes agree on it.
//
// A loss counts for the whole deployment, also when one of several masters has lost its
// data: whose slots were whose by then is not known.
type guard struct {
	*canaries
	policy     Amnesia
	window     time.Duration
	suspectFor time.Duration
	secondary  SecondaryStore
	report     func(preflight.Finding)

	view    atomic.Pointer[view]
	suspect atomic.Pointer[time.Time] // until when; nil: not
	// the client's connections when servers were last asked who they are
	conns   atomic.Uint64
	flagged atomic.Uint64
	memory  memory
	evicts  atomic.Bool               // a server may evict keys, as far as it was last asked
	looked  atomic.Pointer[time.Time] // when lookDue was last true for its time

	recorded map[string]uint64 // what the record of evictions had when New read it

	mu       sync.Mutex // one at a time reads all, marks or compares servers
	read     time.Time
	marked   time.Time
	reported time.Time
	known    servers
}

// view is what was last learned of the canaries. It is never changed.
type view struct {
	values []string  // what the canaries must hold
	until  time.Time // zero: nothing is lost
}

func (v *view) lost() bool { return v != nil && time.Now().Before(v.until) }

func (g *guard) on() bool { return g.policy != GuardOff }

// amnesic says why claims must not be granted as usual, or nil.
func (g *guard) amnesic() error {
	if v := g.view.Load(); v.lost() {
		return fmt.Errorf("%w: claims are not safe for another %v", ErrAmnesia,
			time.Until(v.until).Round(time.Second))
	}
	if until := g.suspect.Load(); until != nil && time.Now().Before(*until) {
		return fmt.Errorf("%w: a failover or restart may have: claims wait for %v", ErrAmnesia,
			time.Until(*until).Round(time.Millisecond))
	}
	return nil
}

// closed says why no claim may be sent at all, or nil. Every now and then it looks at
// the canaries again: an operator may have acknowledged the loss.
func (g *guard) closed(ctx context.Context) error {
	if g.policy != FailClosed || g.amnesic() == nil {
		return nil
	}
	if g.mu.TryLock() {
		_ = within(ctx, func() error { // it is closed already, whatever the error
			defer g.mu.Unlock()
			if time.Since(g.read) < rereadAfter {
				return nil
			}
			return g.reread(ctx)
		})
	}
	return g.amnesic()
}

// look reads all canaries and the server's time.
func (g *guard) look(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reread(ctx)
}

// reread needs mu. A canary that is missing, or changed without an acknowledgement, is written
// down as lost, and then read again: another process may have been faster.
func (g *guard) reread(ctx context.Context) error {
	g.read = time.Now()
	now, err := g.client.Time(ctx).Result()
	if err != nil {
		return err
	}
	sights := g.canaries.read(ctx)
	missing, changed := g.compare(sights)
	if len(missing)+len(changed) > 0 {
		g.mark(ctx, now, missing, changed)
		sights = g.canaries.read(ctx)
	}
	g.adopt(now, sights, len(missing)+len(changed))
	for _, s := range sights {
		if s.err != nil {
			return s.err
		}
	}
	return nil
}

// compare finds the canaries that show a loss which nobody has written down yet.
func (g *guard) compare(sights []sight) (missing, changed []int) {
	before := g.view.Load()
	for i, s := range sights {
		if s.err != nil {
			continue
		}
		if s.missing {
			missing = append(missing, i)
			continue
		}
		c, err := parseCanary(s.value)
		if err != nil || c.state == canaryOK && before != nil && s.value != before.values[i] {
			changed = append(changed, i) // by whom? Init, after all was lost
		}
	}
	return missing, changed
}

// mark writes a loss down for all processes. When that fails (memory is full), this process
// still knows.
func (g *guard) mark(ctx context.Context, now time.Time, missing, changed []int) {
	g.marked = time.Now()
	value := func() string { return newCanary(canaryLost, now) }
	_ = g.write(ctx, missing, true, value)
	_ = g.write(ctx, changed, false, value)
}

// adopt makes what was seen the current view, and reports what is new.
func (g *guard) adopt(now time.Time, sights []sight, fresh int) {
	before := g.view.Load()
	next := &view{values: make([]string, len(sights))}
	if fresh > 0 {
		next.until = time.Now().Add(g.window)
	}
	for i, s := range sights {
		if s.err != nil && before != nil { // not seen: what was known stands
			next.values[i] = before.values[i]
			s.value = before.values[i]
		} else {
			next.values[i] = s.value
		}
		if c, err := parseCanary(s.value); err == nil && c.state == canaryLost {
			// A clock that was set back must not keep it closed for longer than a window.
			left := min(c.lost.Add(g.window).Sub(now), g.window)
			if until := time.Now().Add(left); left > 0 && until.After(next.until) {
				next.until = until
			}
		}
	}
	if fresh > 0 || next.lost() && !before.lost() ||
		before != nil && !slices.Equal(before.values, next.values) {
		g.memory.lapsed() // before anybody acts on the new view
	}
	g.view.Store(next)
	switch {
	case next.lost() && (!before.lost() || fresh > 0 && time.Since(g.reported) > remarkAfter):
		g.reported = time.Now()
		g.report(advices.Finding(codeAmnesia, "",
			"of %d canaries %d are missing or changed; claims follow %s for %v",
			len(sights), fresh, g.policy, time.Until(next.until).Round(time.Second)))
	case !next.lost() && before != nil && !before.until.IsZero():
		g.report(advices.Finding(codeRecovered, "", "the loss is acknowledged, or %v ago",
			g.window))
	}
}

// lose raises amnesia for a loss that has left the canaries alone, such as evictions.
func (g *guard) lose(ctx context.Context) error {
	if !g.on() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.view.Load().lost() && time.Since(g.marked) < min(remarkAfter, g.window/4) {
		return nil
	}
	now, err := g.client.Time(ctx).Result()
	if err != nil {
		return err
	}
	all := make([]int, len(g.keys))
	for i := range all {
		all[i] = i
	}
	g.mark(ctx, now, nil, all)
	g.adopt(now, g.canaries.read(ctx), len(all))
	return nil
}

// beSuspicious refuses claims for a moment.
func (g *guard) beSuspicious() {
	until := time.Now().Add(g.suspectFor)
	g.memory.lapsed()
	g.suspect.Store(&until)
}

// open reads the canaries for the first time.
func (g *guard) open(ctx context.Context) error {
	if !g.on() {
		return nil
	}
	sights := g.canaries.read(ctx)
	there := 0
	for _, s := range sights {
		if s.err != nil {
			return fmt.Errorf("redisadapter: cannot read a canary: %w", s.err)
		}
		if !s.missing {
			there++
		}
	}
	if there == 0 {
		return fmt.Errorf("%w %q: at the first start of a deployment call redisadapter.Init once; "+
			"otherwise the data is lost, and redisadapter.Init accepts that",
			ErrNoCanary, g.keys[0])
	}
	err := g.look(ctx)
	if err != nil {
		return fmt.Errorf("redisadapter: cannot read the canaries: %w", err)
	}
	if g.recorded, err = g.readEvictions(ctx); err != nil {
		return fmt.Errorf("redisadapter: cannot read the record of evictions: %w", err)
	}
	return g.identify(ctx)
}
