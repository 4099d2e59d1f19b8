package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// Policy is what happens to claims when the server has lost data: redisadapter.Amnesia.
type Policy uint8

const (
	off Policy = iota // nothing is looked for
	failClosed
	// AllowAndFlag grants claims.
	AllowAndFlag
	// AskSecondary asks another store before claims are granted.
	AskSecondary
)

// ErrNoCanary is redisadapter.ErrNoCanary.
var ErrNoCanary = errors.New("redisadapter: the server holds no canary")

const (
	// DefaultSuspectFor is how long claims are refused after a failover or restart that
	// kept the canary: replication lags by less than a second on a healthy link, a failover takes a
	// few seconds, and appendfsync everysec may lose two seconds.
	DefaultSuspectFor = 2 * time.Second

	// rereadAfter is how often a store that refuses claims looks whether it may stop.
	rereadAfter = 500 * time.Millisecond
	// remarkAfter is how often a loss that continues (evictions) is written down again.
	remarkAfter = time.Minute
)

// Amnesia knows whether the server has lost data. Its times are by our monotonic clock; the time of
// a loss is kept in the canaries, by the server's clock, so that all processes agree on it.
//
// A loss counts for the whole deployment, even when only one of several masters has lost its data:
// nobody knows which slots it had by then.
type Amnesia struct {
	*Canaries
	Policy     Policy
	window     time.Duration
	suspectFor time.Duration
	Secondary  driver.Store
	Report     func(preflight.Finding)

	view    atomic.Pointer[view]
	suspect atomic.Pointer[time.Time] // until when; nil: not suspected
	// the client's connections when servers were last asked who they are
	conns   atomic.Uint64
	Flagged atomic.Uint64
	Memory  memory
	evicts  atomic.Bool               // a server may evict keys, as far as it was last asked
	looked  atomic.Pointer[time.Time] // when lookDue was last true because of the time

	recorded map[string]uint64 // the record of evictions as New read it

	mu       sync.Mutex // held while reading all canaries, marking, or comparing servers
	read     time.Time
	marked   time.Time
	reported time.Time
	known    servers
}

// view is what was last learned of the canaries. A view is never changed.
type view struct {
	values []string  // what the canaries must hold
	until  time.Time // zero: nothing is lost
}

func (v *view) lost() bool { return v != nil && time.Now().Before(v.until) }

// On reports whether the guard looks for anything.
func (g *Amnesia) On() bool { return g.Policy != off }

// amnesic returns why claims must not be granted as usual, or nil.
func (g *Amnesia) amnesic() error {
	if v := g.view.Load(); v.lost() {
		return fmt.Errorf("%w: claims are not safe for another %v", wire.ErrAmnesia,
			time.Until(v.until).Round(time.Second))
	}
	if until := g.suspect.Load(); until != nil && time.Now().Before(*until) {
		return fmt.Errorf("%w: a failover or restart may have: claims wait for %v", wire.ErrAmnesia,
			time.Until(*until).Round(time.Millisecond))
	}
	return nil
}

// Closed returns why no claim may be sent at all, or nil. Now and then it reads the canaries again:
// an operator may have acknowledged the loss.
func (g *Amnesia) Closed(ctx context.Context) error {
	if g.Policy != failClosed || g.amnesic() == nil {
		return nil
	}
	if g.mu.TryLock() {
		_ = wire.Within(ctx, func() error { // it is closed already, whatever the error
			defer g.mu.Unlock()
			if time.Since(g.read) < rereadAfter {
				return nil
			}
			return g.reread(ctx)
		})
	}
	return g.amnesic()
}

// Look reads all canaries and the server's time.
func (g *Amnesia) Look(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reread(ctx)
}

// reread needs mu. It marks every canary as lost that is missing or has changed without an
// acknowledgement, and then reads all of them again, because another process may have been faster.
func (g *Amnesia) reread(ctx context.Context) error {
	g.read = time.Now()
	now, err := g.Client.Time(ctx).Result()
	if err != nil {
		return err
	}
	sights := g.Read(ctx)
	missing, changed := g.compare(sights)
	if len(missing)+len(changed) > 0 {
		g.mark(ctx, now, missing, changed)
		sights = g.Read(ctx)
	}
	g.adopt(now, sights, len(missing)+len(changed))
	for _, s := range sights {
		if s.Err != nil {
			return s.Err
		}
	}
	return nil
}

// compare finds the canaries that show a loss which nobody has written down yet.
func (g *Amnesia) compare(sights []Sight) (missing, changed []int) {
	before := g.view.Load()
	for i, s := range sights {
		if s.Err != nil {
			continue
		}
		if s.Missing {
			missing = append(missing, i)
			continue
		}
		c, err := ParseCanary(s.value)
		if err != nil || c.State == CanaryOK && before != nil && s.value != before.values[i] {
			changed = append(changed, i) // by Init, after all was lost
		}
	}
	return missing, changed
}

// mark writes a loss down for all processes. When that fails (memory is full), this process still
// knows of the loss.
func (g *Amnesia) mark(ctx context.Context, now time.Time, missing, changed []int) {
	g.marked = time.Now()
	value := func() string { return NewCanary(canaryLost, now) }
	_ = g.Write(ctx, missing, true, value)
	_ = g.Write(ctx, changed, false, value)
}

// adopt makes what was seen the current view, and reports what is new.
func (g *Amnesia) adopt(now time.Time, sights []Sight, fresh int) {
	before := g.view.Load()
	next := &view{values: make([]string, len(sights))}
	if fresh > 0 {
		next.until = time.Now().Add(g.window)
	}
	for i, s := range sights {
		if s.Err != nil && before != nil { // not seen: what was known stands
			next.values[i] = before.values[i]
			s.value = before.values[i]
		} else {
			next.values[i] = s.value
		}
		if c, err := ParseCanary(s.value); err == nil && c.State == canaryLost {
			// A clock that was set back must not keep the guard closed for longer than a window.
			left := min(c.lost.Add(g.window).Sub(now), g.window)
			if until := time.Now().Add(left); left > 0 && until.After(next.until) {
				next.until = until
			}
		}
	}
	if fresh > 0 || next.lost() && !before.lost() ||
		before != nil && !slices.Equal(before.values, next.values) {
		g.Memory.lapsed() // before anybody acts on the new view
	}
	g.view.Store(next)
	switch {
	case next.lost() && (!before.lost() || fresh > 0 && time.Since(g.reported) > remarkAfter):
		g.reported = time.Now()
		g.Report(wire.Advices.Finding(wire.CodeAmnesia, "",
			"of %d canaries %d are missing or changed; claims follow %s for %v",
			len(sights), fresh, g.Policy, time.Until(next.until).Round(time.Second)))
	case !next.lost() && before != nil && !before.until.IsZero():
		g.Report(wire.Advices.Finding(wire.CodeRecovered, "", "the loss is acknowledged, or %v ago",
			g.window))
	}
}

// lose raises amnesia for a loss that has not touched the canaries, such as evictions.
func (g *Amnesia) lose(ctx context.Context) error {
	if !g.On() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.view.Load().lost() && time.Since(g.marked) < min(remarkAfter, g.window/4) {
		return nil
	}
	now, err := g.Client.Time(ctx).Result()
	if err != nil {
		return err
	}
	all := make([]int, len(g.Keys))
	for i := range all {
		all[i] = i
	}
	g.mark(ctx, now, nil, all)
	g.adopt(now, g.Read(ctx), len(all))
	return nil
}

// BeSuspicious refuses claims for a moment.
func (g *Amnesia) BeSuspicious() {
	until := time.Now().Add(g.suspectFor)
	g.Memory.lapsed()
	g.suspect.Store(&until)
}

// Open reads the canaries for the first time.
func (g *Amnesia) Open(ctx context.Context) error {
	if !g.On() {
		return nil
	}
	sights := g.Read(ctx)
	there := 0
	for _, s := range sights {
		if s.Err != nil {
			return fmt.Errorf("redisadapter: cannot read a canary: %w", s.Err)
		}
		if !s.Missing {
			there++
		}
	}
	if there == 0 {
		return fmt.Errorf("%w %q: at the first start of a deployment call redisadapter.Init once; "+
			"otherwise the data is lost, and redisadapter.Init accepts that",
			ErrNoCanary, g.Keys[0])
	}
	err := g.Look(ctx)
	if err != nil {
		return fmt.Errorf("redisadapter: cannot read the canaries: %w", err)
	}
	if g.recorded, err = g.readEvictions(ctx); err != nil {
		return fmt.Errorf("redisadapter: cannot read the record of evictions: %w", err)
	}
	return g.identify(ctx)
}

// Health returns whether claims follow the policy now, whether data is only suspected to be lost,
// and for how much longer.
func (g *Amnesia) Health() (amnesia, suspect bool, remaining time.Duration) {
	if v := g.view.Load(); v.lost() {
		return true, false, time.Until(v.until)
	}
	if until := g.suspect.Load(); until != nil && time.Now().Before(*until) {
		return g.On(), true, time.Until(*until)
	}
	return false, false, 0
}

// Config says what a guard does.
type Config struct {
	Prefix     string
	Policy     uint8 // of redisadapter.Amnesia
	Window     time.Duration
	SuspectFor time.Duration
	Secondary  driver.Store
	Report     func(preflight.Finding)
}

// New returns a guard that has not looked yet.
func New(client redis.UniversalClient, c Config) *Amnesia {
	return &Amnesia{Canaries: NewCanaries(client, c.Prefix), Policy: Policy(c.Policy),
		window: c.Window, suspectFor: c.SuspectFor, Secondary: c.Secondary, Report: c.Report}
}

// Flag counts claims that are granted in spite of amnesia, and reports them.
func (g *Amnesia) Flag(claims int, why error) {
	g.Flagged.Add(uint64(claims))
	g.Report(wire.Advices.Finding(wire.CodeFlagged, "", "%d claims are granted: %v", claims, why))
}

// String returns the lower-case name.
func (p Policy) String() string {
	switch p {
	case off:
		return "off"
	case failClosed:
		return "fail_closed"
	case AllowAndFlag:
		return "allow_and_flag"
	case AskSecondary:
		return "ask_secondary"
	}
	return fmt.Sprintf("amnesia(%d)", uint8(p))
}

// lookEvery is how often servers are asked again before claims are granted.
const lookEvery = 400 * time.Millisecond
