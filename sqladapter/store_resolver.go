package sqladapter

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
)

// Policy is what becomes of uncertain keys: attempts that ended after [dedup.MarkIrreversible]
// without saying how.
type Policy uint8

const (
	// PolicyAsk puts each to ResolverConfig.Ask. It is the zero value.
	PolicyAsk Policy = iota
	// PolicyHold leaves them to an operator, and tells ResolverConfig.Alarm.
	PolicyHold
	// PolicyRerun releases them, so that the next delivery runs the effect again: for
	// effects that may happen twice, or that are refused the second time downstream.
	PolicyRerun
)

// Defaults of a [ResolverConfig].
const (
	DefaultResolveEvery = 5 * time.Second
	DefaultAskLease     = 30 * time.Second
	DefaultAskTimeout   = time.Minute
	DefaultAskWait      = time.Second
	DefaultMaxAskWait   = 10 * time.Minute
	DefaultMaxAsks      = 20
	DefaultParallelAsks = 4
	DefaultReleaseHold  = time.Hour
	DefaultAlarmAge     = 15 * time.Minute
)

// Doubt is an uncertain key.
type Doubt struct {
	// ID of the key: stores know its digest only; see Label and DownstreamKey.
	ID driver.ID
	// Record of the key: Attempt is the number of the attempt in doubt, Steps what it is
	// known to have finished, Label and Origin are those of its claim.
	Record dedup.Record
	// Asked counts how often somebody has claimed the key to find out, this time included.
	Asked int
	// Age is how long ago MarkIrreversible was called.
	Age time.Duration
}

// Resolved counts what a pass of a [Resolver] has come to.
type Resolved struct {
	// Succeeded, Failed and Released keys are known now.
	Succeeded, Failed, Released int
	// Unknown keys were asked about in vain, and will be again.
	Unknown int
	// Waiting keys were asked about not long ago, or are being asked about elsewhere.
	Waiting int
	// Held keys wait for an operator: see PolicyHold and ResolverConfig.MaxAsks.
	Held int
}

// ResolverConfig says how a [Resolver] finds out. Ask and Window are required, unless Policy
// is another one.
type ResolverConfig struct {
	// Policy for uncertain keys. Default: [PolicyAsk].
	Policy Policy
	// Ask finds out how the attempt in doubt has ended, most often by the idempotency key that
	// it gave to the downstream, and answers as dedup.Config.Resolve does: dedup.Happened,
	// dedup.FailedForGood, dedup.DidNotHappen, or the zero Resolution or an error when it does
	// not know. ctx ends with the Resolver, and
	// with cause dedup.ErrLeaseLost when the key is lost, and after Timeout. It is called from
	// several goroutines at a time, but in all processes together for one key by one. A panic is
	// an error. One that does not return keeps its key, and the next pass. No default.
	Ask func(ctx context.Context, d Doubt) (dedup.Resolution, error)
	// Window is how long a key that has succeeded or failed is remembered: that of the
	// Deduper. No default.
	Window time.Duration
	// Hold is how long a released key keeps its attempt and fence. Default:
	// [DefaultReleaseHold].
	Hold time.Duration
	// Timeout is how long one Ask may take before its ctx ends. Default: [DefaultAskTimeout].
	Timeout time.Duration
	// Lease of the claim under which somebody asks, renewed while Ask runs: so long it takes
	// until a key is asked about again whose resolver has died. Default: [DefaultAskLease].
	Lease time.Duration
	// Every is the pause between two passes, give or take a third. Default:
	// [DefaultResolveEvery].
	Every time.Duration
	// Wait is the pause before a key is asked about the second time. It doubles with each
	// ask, up to MaxWait, and up to a half is taken off by chance. Default: [DefaultAskWait].
	Wait time.Duration
	// MaxWait bounds Wait. Default: [DefaultMaxAskWait], or Wait where that is larger.
	MaxWait time.Duration
	// MaxAsks is how often a key is asked about, by all processes together, before it is left
	// to an operator. Default: [DefaultMaxAsks].
	MaxAsks int
	// Parallel is how many keys are asked about at a time. Default: [DefaultParallelAsks].
	Parallel int
	// AlarmAge is the age at which Alarm is told of a key. Default: [DefaultAlarmAge].
	AlarmAge time.Duration
	// Alarm, if set, is told once of each key that is as old as AlarmAge, or is left to an
	// operator: who says that the effect has happened with Deduper.Mark, and that it
	// may run again with Deduper.Forget. It must return soon.
	Alarm func(d Doubt, why string)
	// Failed, if set, is told of errors of the store, and of Ask, from several goroutines at a
	// time. It must return soon.
	Failed func(error)
}

// Resolver finds out about uncertain keys in the background: without it, or
// dedup.Config.Resolve, which asks when the key is next claimed, they stay uncertain for the
// Deduper's window. Any number of processes may have one: a key is claimed before it is
// asked about, and what was found is written only by who holds the claim. Make it with
// [NewResolver].
type Resolver struct {
	store *Store
	cfg   ResolverConfig

	mu      sync.Mutex
	alarmed map[driver.ID]bool
}

// NewResolver checks the configuration, and returns a [*dedup.InputError] that names the
// field. It does not touch the database.
func NewResolver(store *Store, cfg ResolverConfig) (*Resolver, error) {
	if store == nil {
		return nil, inputError("store", "is nil")
	}
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return &Resolver{store: store, cfg: cfg, alarmed: make(map[driver.ID]bool)}, nil
}

// complete fills in the defaults.
func (c *ResolverConfig) complete() error {
	switch {
	case c.Policy > PolicyRerun:
		return inputError("ResolverConfig.Policy", fmt.Sprintf("is %d, which is none", c.Policy))
	case c.Policy == PolicyAsk && c.Ask == nil:
		return inputError("ResolverConfig.Ask", "is nil")
	case c.Policy != PolicyAsk && c.Ask != nil:
		return inputError("ResolverConfig.Ask", "is set, and Policy asks nobody")
	case c.Policy == PolicyAsk && c.Window <= 0:
		return inputError("ResolverConfig.Window", "is not positive")
	case c.MaxAsks < 0 || c.MaxAsks > maxAsked:
		return inputError("ResolverConfig.MaxAsks",
			fmt.Sprintf("is %d; at most %d is allowed", c.MaxAsks, maxAsked))
	case c.Parallel < 0:
		return inputError("ResolverConfig.Parallel", "is negative")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"Hold", &c.Hold, DefaultReleaseHold}, {"Lease", &c.Lease, DefaultAskLease},
		{"Timeout", &c.Timeout, DefaultAskTimeout}, {"Every", &c.Every, DefaultResolveEvery},
		{"Wait", &c.Wait, DefaultAskWait}, {"MaxWait", &c.MaxWait, max(DefaultMaxAskWait, c.Wait)},
		{"AlarmAge", &c.AlarmAge, DefaultAlarmAge},
	} {
		if *d.value < 0 {
			return inputError("ResolverConfig."+d.name, "is negative")
		}
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	if c.Wait > c.MaxWait {
		return inputError("ResolverConfig.Wait", "is above MaxWait")
	}
	if c.MaxAsks == 0 {
		c.MaxAsks = DefaultMaxAsks
	}
	if c.Parallel == 0 {
		c.Parallel = DefaultParallelAsks
	}
	return nil
}

// Run makes passes until ctx ends, and returns its cause. When a process dies after
// MarkIrreversible, its key is found uncertain when its lease has lapsed, and asked about within
// Every and a third after that. It returns when every Ask has: they see ctx end.
func (r *Resolver) Run(ctx context.Context) error {
	if ctx == nil {
		return inputError("Context", "is nil")
	}
	pause := backoff.Policy{Base: r.cfg.Every + r.cfg.Every/3, Cap: r.cfg.Every + r.cfg.Every/3,
		Kind: backoff.Equal}
	for {
		if _, err := r.Pass(ctx); err != nil && ctx.Err() == nil {
			r.fail(err)
		}
		if err := backoff.Sleep(ctx, pause.Delay(0, 0, nil)); err != nil {
			return err
		}
	}
}

// Pass goes over all uncertain keys once, and returns when each that was due has been asked
// about, or ctx has ended. Its error is that of listing them; Failed is told of those of
// single keys. A round trip for each hundred keys in flight or uncertain, and about ten for
// each that is asked about.
func (r *Resolver) Pass(ctx context.Context) (Resolved, error) {
	if ctx == nil {
		return Resolved{}, inputError("Context", "is nil")
	}
	p := pass{Resolver: r, room: make(chan struct{}, r.cfg.Parallel),
		seen: make(map[driver.ID]bool)}
	err := p.run(ctx)
	p.asking.Wait()
	if err == nil {
		r.forgetAlarms(p.seen)
	}
	return p.found, err
}

// pass is one pass over the keys.
type pass struct {
	*Resolver
	room   chan struct{}
	asking sync.WaitGroup
	seen   map[driver.ID]bool

	counting sync.Mutex
	found    Resolved
}

func (p *pass) run(ctx context.Context) error {
	opts := ListOptions{States: []driver.State{driver.StateUncertain}}
	for {
		page, err := p.store.List(ctx, opts)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			p.seen[e.ID] = true
			p.look(ctx, e)
		}
		if opts.Cursor = page.Cursor; opts.Cursor == "" {
			return nil
		}
	}
}

// look decides whether a key is to be asked about now.
func (p *pass) look(ctx context.Context, e Entry) {
	d := Doubt{ID: e.ID, Record: e.Record, Asked: e.Asked, Age: e.Doubt}
	switch {
	case p.cfg.Policy == PolicyHold:
		p.alarm(d, "it is held")
		p.count(func(f *Resolved) { f.Held++ })
		return
	case p.cfg.Policy == PolicyAsk && e.Asked >= p.cfg.MaxAsks:
		p.alarm(d, fmt.Sprintf("it was asked about %d times", e.Asked))
		p.count(func(f *Resolved) { f.Held++ })
		return
	case e.Doubt >= p.cfg.AlarmAge:
		p.alarm(d, fmt.Sprintf("nobody has known for %v", p.cfg.AlarmAge))
	}
	if e.Asked > 0 && e.Rested < p.wait(e.ID, e.Asked) {
		p.count(func(f *Resolved) { f.Waiting++ })
		return
	}
	select {
	case p.room <- struct{}{}:
	case <-ctx.Done():
		return
	}
	p.asking.Go(func() {
		defer func() { <-p.room }()
		p.resolve(ctx, d)
	})
}

// wait is the pause before a key is asked about once more. It is the same for every process
// and every look: drawn anew each time, the shortest would win.
func (r *Resolver) wait(id driver.ID, asked int) time.Duration {
	policy := backoff.Policy{Base: r.cfg.Wait, Cap: r.cfg.MaxWait, Kind: backoff.Equal}
	seed := rand.NewPCG(binary.BigEndian.Uint64(id[:8]), uint64(asked)) // never negative
	return policy.Delay(asked-1, 0, rand.New(seed))                     // no secret
}

func (p *pass) count(add func(*Resolved)) {
	p.counting.Lock()
	defer p.counting.Unlock()
	add(&p.found)
}

// alarm tells of a key once.
func (r *Resolver) alarm(d Doubt, why string) {
	r.mu.Lock()
	told := r.alarmed[d.ID]
	r.alarmed[d.ID] = true
	r.mu.Unlock()
	if !told && r.cfg.Alarm != nil {
		r.cfg.Alarm(d, why)
	}
}

// forgetAlarms forgets those about keys that are uncertain no more.
func (r *Resolver) forgetAlarms(still map[driver.ID]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.alarmed {
		if !still[id] {
			delete(r.alarmed, id)
		}
	}
}

func (r *Resolver) fail(err error) {
	if r.cfg.Failed != nil {
		r.cfg.Failed(err)
	}
}
