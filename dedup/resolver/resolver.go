// Package resolver brings uncertain keys to an end: those whose attempt has passed its point of no
// return ([dedup.MarkIrreversible]) and has not said how it ended. It asks the downstream about
// each and records the answer, without waiting for the next delivery of the message.
//
//	r, err := resolver.New(store, resolver.Config{Window: window, Ask: func(ctx context.Context,
//		u resolver.UncertainRecord) (dedup.Resolution, error) {
//		return findCharge(ctx, u.ID.DownstreamKey("charge"))
//	}})
//	if err != nil {
//		return err
//	}
//	go r.Run(ctx)
//
// The store has to be a [driver.Resolvable]: those of redisadapter, sqlstore and [dedup.Memory]
// are.
package resolver

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
)

// Policy says what becomes of uncertain keys, whose attempts ended after [dedup.MarkIrreversible]
// without saying how.
type Policy uint8

const (
	// PolicyAsk asks Config.Ask about each. It is the zero value.
	PolicyAsk Policy = iota
	// PolicyHold leaves them to an operator, and calls Config.Alarm.
	PolicyHold
	// PolicyRerun releases them, so that the next delivery runs the effect again: for
	// effects that may happen twice, or that are refused the second time downstream.
	PolicyRerun
)

const (
	defaultEvery    = 5 * time.Second
	defaultLease    = 30 * time.Second
	defaultTimeout  = time.Minute
	defaultWait     = time.Second
	defaultMaxWait  = 10 * time.Minute
	defaultMaxAsks  = 20
	defaultParallel = 4
	defaultHold     = time.Hour
	defaultAlarmAge = 15 * time.Minute

	// maxAsks is the number up to which every store counts.
	maxAsks = math.MaxInt16
)

// UncertainRecord is an uncertain key. The DownstreamKey of its ID is the idempotency key of the
// attempt in doubt.
type UncertainRecord = driver.UncertainRecord

// Resolved counts the keys of one pass of a [Resolver] by their results.
type Resolved struct {
	// Succeeded, Failed and Released keys are known now.
	Succeeded, Failed, Released int
	// Unknown keys were asked about in vain, and will be again.
	Unknown int
	// Waiting keys were asked about not long ago, or are being asked about elsewhere.
	Waiting int
	// Held keys wait for an operator: see PolicyHold and Config.MaxAsks.
	Held int
}

// Config says how a [Resolver] finds out. Ask and Window are required with PolicyAsk, the
// default.
type Config struct {
	// Policy for uncertain keys. Default: [PolicyAsk].
	Policy Policy
	// Ask finds out how the attempt in doubt has ended, most often by the idempotency key that it
	// gave to the downstream: u.ID.DownstreamKey. It returns [dedup.Happened],
	// [dedup.FailedForGood] or [dedup.DidNotHappen], and the zero Resolution or an error when it
	// does not know. A result that the store refuses, as too large, is not kept. Its context ends
	// with the Resolver, after Timeout, and with cause [dedup.ErrLeaseLost] when the key is lost.
	// Several goroutines call it, but across all processes no two at once for the same key. A
	// panic is an error. Until it returns, the key and the next pass wait. No default.
	Ask func(ctx context.Context, u UncertainRecord) (dedup.Resolution, error)
	// Window is how long a key that has succeeded or failed is remembered: that of the
	// Deduper. No default.
	Window time.Duration
	// Hold is how long a released key keeps its attempt and fence. Default: an hour.
	Hold time.Duration
	// Timeout is how long one Ask may take before its ctx ends. Default: a minute.
	Timeout time.Duration
	// Lease of the claim under which a key is asked about, renewed while Ask runs. A key whose
	// resolver has died is asked about again after Lease. Default: 30 s.
	Lease time.Duration
	// Every is the pause between two passes, give or take a third. Default: 5 s.
	Every time.Duration
	// Wait is the pause before a key is asked about the second time. It doubles with each
	// ask, up to MaxWait, and a random part of up to a half is taken off. Default: 1 s.
	Wait time.Duration
	// MaxWait bounds Wait. Default: 10 minutes, or Wait where that is larger.
	MaxWait time.Duration
	// MaxAsks is how often a key is asked about, by all processes together, before it is left
	// to an operator. Default: 20.
	MaxAsks int
	// Parallel is how many keys are asked about at a time. Default: 4.
	Parallel int
	// AlarmAge is the age at which Alarm is called. Default: 15 minutes.
	AlarmAge time.Duration
	// Alarm, if set, is called once for each key that is as old as AlarmAge, or that only an
	// operator can decide: with Deduper.Mark when the effect has happened, with Deduper.Forget when
	// it may run again. It must return soon.
	Alarm func(u UncertainRecord, why string)
	// Failed, if set, is called with errors of the store and of Ask, by several goroutines at a
	// time. It must return soon.
	Failed func(error)
}

// Resolver finds out about uncertain keys in the background. Without one they stay uncertain for
// the Deduper's window, or until [dedup.Config].Resolve answers at the next delivery. Any number of
// processes may have one: a key is claimed before it is asked about, and the answer is written only
// under that claim. Make it with [New].
type Resolver struct {
	store driver.Resolvable
	waker driver.Waker // nil where the store is none
	cfg   Config

	mu      sync.Mutex
	alarmed map[driver.ID]time.Time // Alarm was called: when the key was last listed
}

// New checks the configuration, and returns a [*dedup.InputError] that names the field. It sends
// nothing. The store is that of the Deduper, without what wraps it, and has to be a
// [driver.Resolvable].
func New(store dedup.Store, cfg Config) (*Resolver, error) {
	s, ok := store.(driver.Resolvable)
	if !ok {
		return nil, inputError("store", fmt.Sprintf("is a %T, which does not find uncertain keys",
			store))
	}
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	waker, _ := store.(driver.Waker)
	return &Resolver{store: s, waker: waker, cfg: cfg, alarmed: make(map[driver.ID]time.Time)}, nil
}

func inputError(field, reason string) error {
	return &driver.InputError{Field: field, Reason: reason}
}

// complete fills in the defaults.
func (c *Config) complete() error {
	switch {
	case c.Policy > PolicyRerun:
		return inputError("Config.Policy", fmt.Sprintf("is %d, which is none", c.Policy))
	case c.Policy == PolicyAsk && c.Ask == nil:
		return inputError("Config.Ask", "is nil")
	case c.Policy != PolicyAsk && c.Ask != nil:
		return inputError("Config.Ask", "is set, and Policy asks nobody")
	case c.Policy == PolicyAsk && c.Window <= 0:
		return inputError("Config.Window", "is not positive")
	case c.MaxAsks < 0 || c.MaxAsks > maxAsks:
		return inputError("Config.MaxAsks",
			fmt.Sprintf("is %d; at most %d is allowed", c.MaxAsks, maxAsks))
	case c.Parallel < 0:
		return inputError("Config.Parallel", "is negative")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"Hold", &c.Hold, defaultHold}, {"Lease", &c.Lease, defaultLease},
		{"Timeout", &c.Timeout, defaultTimeout}, {"Every", &c.Every, defaultEvery},
		{"Wait", &c.Wait, defaultWait}, {"MaxWait", &c.MaxWait, max(defaultMaxWait, c.Wait)},
		{"AlarmAge", &c.AlarmAge, defaultAlarmAge},
	} {
		if *d.value < 0 {
			return inputError("Config."+d.name, "is negative")
		}
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	if c.Wait > c.MaxWait {
		return inputError("Config.Wait", "is above MaxWait")
	}
	if c.MaxAsks == 0 {
		c.MaxAsks = defaultMaxAsks
	}
	if c.Parallel == 0 {
		c.Parallel = defaultParallel
	}
	return nil
}

// Run makes passes until ctx ends, and returns its cause. When a process dies after
// MarkIrreversible, its key becomes uncertain as its lease lapses, and is asked about within Every
// plus a third of it. Run returns when every Ask has returned: their contexts end with ctx.
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

// Pass goes over all uncertain keys once, and returns when each key that was due has been asked
// about, or ctx has ended. It returns the error of listing the keys; errors of single keys go to
// Failed. A key that is asked about costs three round trips, and one for each renewal.
func (r *Resolver) Pass(ctx context.Context) (Resolved, error) {
	if ctx == nil {
		return Resolved{}, inputError("Context", "is nil")
	}
	p := pass{Resolver: r, room: make(chan struct{}, r.cfg.Parallel)}
	err := p.run(ctx)
	p.asking.Wait()
	if err == nil {
		r.forgetAlarms()
	}
	return p.found, err
}

// pass is one pass over the keys.
type pass struct {
	*Resolver
	room   chan struct{}
	asking sync.WaitGroup

	counting sync.Mutex
	found    Resolved
}

func (p *pass) run(ctx context.Context) error {
	for cursor := ""; ; {
		asked := time.Now()
		page, next, err := p.store.Uncertain(ctx, cursor, 0)
		if err != nil {
			return err
		}
		p.listed(page, asked)
		for i := range page {
			p.look(ctx, page[i])
		}
		if next == "" {
			return nil
		}
		cursor = next
	}
}

// look decides whether a key is to be asked about now.
func (p *pass) look(ctx context.Context, u UncertainRecord) {
	switch {
	case p.cfg.Policy == PolicyHold:
		p.alarm(u, "it is held")
		p.count(func(f *Resolved) { f.Held++ })
		return
	case p.cfg.Policy == PolicyAsk && u.Asked >= p.cfg.MaxAsks:
		p.alarm(u, fmt.Sprintf("it was asked about %d times", u.Asked))
		p.count(func(f *Resolved) { f.Held++ })
		return
	case u.Age >= p.cfg.AlarmAge:
		p.alarm(u, fmt.Sprintf("nobody has known for %v", p.cfg.AlarmAge))
	}
	if u.Asked > 0 && u.Rested < p.wait(u.ID, u.Asked) {
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
		p.resolve(ctx, u)
	})
}

// wait returns the pause before a key is asked about once more. It is the same for every process
// and every look: if it were drawn anew each time, the shortest would win.
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

// alarm calls Alarm for a key, once.
func (r *Resolver) alarm(u UncertainRecord, why string) {
	r.mu.Lock()
	_, alarmed := r.alarmed[u.ID]
	if !alarmed {
		r.alarmed[u.ID] = time.Now()
	}
	r.mu.Unlock()
	if !alarmed && r.cfg.Alarm != nil {
		r.cfg.Alarm(u, why)
	}
}

// listed notes that keys with an alarm are uncertain still. A key whose point of no return was
// declared after it was last listed has another attempt in doubt, which deserves an alarm of its
// own.
func (r *Resolver) listed(page []UncertainRecord, asked time.Time) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range page {
		last, alarmed := r.alarmed[page[i].ID]
		switch {
		case !alarmed:
		case asked.Add(-page[i].Age).After(last):
			delete(r.alarmed, page[i].ID)
		default:
			r.alarmed[page[i].ID] = now
		}
	}
}

// forgetAlarms forgets the alarms about keys that are no longer uncertain. A key is not listed
// while another process asks about it, so it must have been missing for longer than that takes.
func (r *Resolver) forgetAlarms() {
	before := time.Now().Add(-2 * (r.cfg.Timeout + r.cfg.Lease))
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, last := range r.alarmed {
		if last.Before(before) {
			delete(r.alarmed, id)
		}
	}
}

func (r *Resolver) fail(err error) {
	if r.cfg.Failed != nil {
		r.cfg.Failed(err)
	}
}
