package resolver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
)

// resolve finds out about one key under a claim of its own.
func (p *pass) resolve(ctx context.Context, u UncertainRecord) {
	claim := driver.ClaimRequest{ID: u.ID, Lease: p.cfg.Lease}
	_, _ = rand.Read(claim.Token[:])
	sent := time.Now()
	ans := p.store.ClaimUncertain(ctx, claim)
	switch {
	case ans.Err != nil:
		p.fail(ans.Err)
		return
	case ans.Outcome != driver.Acquired: // somebody else asks, or knows by now
		p.count(func(f *Resolved) { f.Waiting++ })
		return
	}
	u.Record, u.Asked = ans.Record, u.Asked+1
	u.Record.State = driver.StateUncertain
	change := driver.Finish{
		ID: u.ID, Token: claim.Token, Fence: ans.Record.Fence, Lease: p.cfg.Lease, Hold: p.cfg.Hold,
		Window: p.cfg.Window,
	}
	state, data := driver.StateReleased, []byte(nil)
	if p.cfg.Policy == PolicyAsk {
		state, data = p.ask(ctx, u, change, sent.Add(p.cfg.Lease))
	}
	p.write(ctx, change, state, data)
}

// ask calls the user's function and keeps the claim alive meanwhile. The answer that the effect has
// not happened counts only if the function's context has not ended. Any answer is written only
// while the claim is held.
func (p *pass) ask(ctx context.Context, u UncertainRecord, change driver.Finish,
	until time.Time) (driver.State, []byte) {
	claimed, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	run, late := context.WithTimeout(claimed, p.cfg.Timeout)
	defer late()
	stopped := make(chan struct{})
	stop, cancel := context.WithCancel(claimed) // not from run: Ask may go on after its timeout
	defer cancel()                              // also when Ask ends its goroutine
	go func() {
		defer close(stopped)
		p.keep(stop, lose, driver.Renewal{ID: change.ID, Token: change.Token,
			Fence: change.Fence, Lease: change.Lease}, until)
	}()
	found, err := p.call(run, u)
	cancel()
	<-stopped
	lost := context.Cause(run)
	switch state, data := found.State, found.Result; {
	case err != nil:
	case state == driver.StateSucceeded, state == driver.StateFailed,
		state == driver.StateReleased &&
			lost == nil:
		return state, data
	default:
		err = lost
	}
	if err != nil && ctx.Err() == nil {
		p.fail(fmt.Errorf("resolver: ask: %w", err))
	}
	return driver.StateUncertain, nil
}

// call calls Ask, and turns a panic into an error: the process has other work than this key.
func (p *pass) call(ctx context.Context, u UncertainRecord) (found dedup.Resolution, err error) {
	defer func() {
		if v := recover(); v != nil {
			found, err = dedup.Resolution{},
				fmt.Errorf("it has panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return p.cfg.Ask(ctx, u)
}

// keep renews the claim until ctx ends, and calls lose when another owner is found, or when it may
// have lapsed by this process's clock. The renewals need no Hold and no Window: an uncertain key is
// not forgotten any earlier.
func (p *pass) keep(ctx context.Context, lose context.CancelCauseFunc,
	renewal driver.Renewal, until time.Time) {
	for {
		pause := min(p.cfg.Lease/3, time.Until(until)/2)
		if pause < p.cfg.Lease/50 {
			lose(dedup.ErrLeaseLost)
			return
		}
		if backoff.Sleep(ctx, pause) != nil {
			return
		}
		sent := time.Now()
		within, cancel := context.WithDeadline(ctx, until)
		ans := p.store.Renew(within, []driver.Renewal{renewal})[0]
		cancel()
		switch {
		case ans.Err == nil && !ans.Held:
			lose(dedup.ErrLeaseLost)
			return
		case ans.Err == nil:
			until = sent.Add(p.cfg.Lease)
		}
	}
}

// writeTries bounds how often the end of a key is sent; after that its claim lapses, and the
// key is asked about again.
const writeTries = 3

var again = backoff.Policy{Base: 20 * time.Millisecond, Cap: time.Second}

// write records what was found, also when the Resolver is being stopped: otherwise the claim
// would lapse and the answer would be lost.
func (p *pass) write(ctx context.Context, change driver.Finish, state driver.State, data []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.Lease)
	defer cancel()
	change.State, change.Result = state, data
	limits := driver.LimitsOf(p.store)
	switch state {
	case driver.StateSucceeded:
		if limits.NoResults {
			change.Result, change.NoResult = nil, len(data) > 0
		}
	case driver.StateUncertain:
		// The key is given back: it stays irreversible, and is remembered for as long as before.
		change.State, change.Result, change.Hold, change.Window = driver.StateReleased, nil, 0, 0
	case driver.StateReleased:
		change.NotStarted, change.Result = true, nil
	}
	var ans driver.Answer
	for try := range writeTries {
		if ans = p.end(ctx, &change); ans.Err == nil || !mayPass(ans.Err) {
			break
		}
		_ = backoff.Sleep(ctx, again.Delay(try, 0, nil)) // an ended context ends the next try
	}
	if ans.Err != nil {
		p.fail(ans.Err)
		return
	}
	p.count(func(f *Resolved) { f.add(ans, state) })
	if p.waker != nil && ans.Written { // what is lost costs a waiter some time
		_ = p.waker.Wake(ctx, []driver.ID{change.ID})
	}
}

// end sends the end of a key. If the store refuses the result, as too large, the key is recorded
// without it, as Do does.
func (p *pass) end(ctx context.Context, change *driver.Finish) driver.Answer {
	ans := p.store.Finish(ctx, []driver.Finish{*change})[0]
	var input *dedup.InputError
	if errors.As(ans.Err, &input) && change.State == driver.StateSucceeded &&
		len(change.Result) > 0 {
		change.Result, change.NoResult = nil, true
		ans = p.store.Finish(ctx, []driver.Finish{*change})[0]
	}
	return ans
}

// mayPass reports whether the error of a store may pass by itself.
func mayPass(err error) bool { return dedup.CanRetry(err) || dedup.OutcomeUnknown(err) }

// add counts an end that was written. If the end was not written, somebody else had the key.
func (f *Resolved) add(ans driver.Answer, state driver.State) {
	switch {
	case !ans.Written:
		f.Waiting++
	case state == driver.StateSucceeded:
		f.Succeeded++
	case state == driver.StateFailed:
		f.Failed++
	case state == driver.StateReleased:
		f.Released++
	default:
		f.Unknown++
	}
}
