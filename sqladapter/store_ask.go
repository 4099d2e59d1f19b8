package sqladapter

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
)

// DownstreamKey is the idempotency key that the attempt in doubt got from
// dedup.Attempt.DownstreamKey for the same purpose: what the downstream knows its request by.
// The derivation stands here once more, because an Attempt exists in a handler only; a test
// holds the two together.
func (d *Doubt) DownstreamKey(purpose ...string) string {
	buf := append([]byte("onceward downstream v1"), d.ID[:]...)
	for _, p := range purpose {
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(p)))
		buf = append(buf, p...)
	}
	sum := sha256.Sum256(buf)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// resolve finds out about one key under a claim of its own.
func (p *pass) resolve(ctx context.Context, d Doubt) {
	claim := driver.ClaimRequest{ID: d.ID, Lease: p.cfg.Lease, TakeUncertain: true}
	_, _ = rand.Read(claim.Token[:])
	sent := time.Now()
	ans := p.store.claimToAsk(ctx, claim)
	switch {
	case ans.Err != nil:
		p.fail(ans.Err)
		return
	case ans.Outcome != driver.Acquired: // somebody else asks, or knows by now
		p.count(func(f *Resolved) { f.Waiting++ })
		return
	}
	d.Record, d.Asked = ans.Record, d.Asked+1
	d.Record.State = driver.StateUncertain
	change := driver.Finish{
		ID: d.ID, Token: claim.Token, Fence: ans.Record.Fence, Lease: p.cfg.Lease, Hold: p.cfg.Hold,
		Window: p.cfg.Window,
	}
	state, data := driver.StateReleased, []byte(nil)
	if p.cfg.Policy == PolicyAsk {
		state, data = p.ask(ctx, d, change, sent.Add(p.cfg.Lease))
	}
	p.write(ctx, change, state, data)
}

// claimToAsk takes an uncertain key.
func (s *Store) claimToAsk(ctx context.Context, req driver.ClaimRequest) driver.Answer {
	return answer(ctx, 1, func(answers []driver.Answer) {
		s.settle(ctx, operation{
			id: func(int) driver.ID { return req.ID }, size: noSize,
			decide: func(_ int, r *claimRow, now int64) (driver.Answer, bool) {
				return decideAsk(r, &req, now)
			},
		}, all(1), answers)
	})[0]
}

// ask calls the user's function and keeps the claim alive meanwhile. That the effect has not
// happened counts only if nobody has told the function to end, and what it found is written
// only while the claim is held.
func (p *pass) ask(ctx context.Context, d Doubt, change driver.Finish,
	until time.Time) (driver.State, []byte) {
	claimed, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	run, late := context.WithTimeout(claimed, p.cfg.Timeout)
	defer late()
	stopped := make(chan struct{})
	stop, cancel := context.WithCancel(claimed) // not run: who is late still asks
	defer cancel()                              // also when Ask ends its goroutine
	go func() {
		defer close(stopped)
		p.keep(stop, lose, driver.Renewal{ID: change.ID, Token: change.Token,
			Fence: change.Fence, Lease: change.Lease}, until)
	}()
	found, err := p.call(run, d)
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
		p.fail(fmt.Errorf("sqladapter: ask: %w", err))
	}
	return driver.StateUncertain, nil
}

// call makes an error of a panic: the process has other work than this key.
func (p *pass) call(ctx context.Context, d Doubt) (found dedup.Resolution, err error) {
	defer func() {
		if v := recover(); v != nil {
			found, err = dedup.Resolution{},
				fmt.Errorf("it has panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return p.cfg.Ask(ctx, d)
}

// keep renews the claim until ctx ends, and loses it when another owner is found, or when it
// may have lapsed by this process's clock. Without a Hold or a Window: an uncertain key is not
// forgotten any earlier.
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

// write records what was found, also when the Resolver is being stopped: the claim would
// lapse, but the answer would be lost.
func (p *pass) write(ctx context.Context, change driver.Finish, state driver.State, data []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.Lease)
	defer cancel()
	change.State, change.Result = state, data
	switch state {
	case driver.StateUncertain:
		// Given back: it stays as dangerous as it was, and is remembered for as long.
		change.State, change.Result, change.Hold, change.Window = driver.StateReleased, nil, 0, 0
	case driver.StateReleased:
		change.NotStarted, change.Result = true, nil
	}
	var ans driver.Answer
	for try := range writeTries {
		if ans = p.store.Finish(ctx, []driver.Finish{change})[0]; ans.Err == nil ||
			!mayPass(ans.Err) {
			break
		}
		_ = backoff.Sleep(ctx, again.Delay(try, 0, nil)) // an ended context ends the next try
	}
	if ans.Err != nil {
		p.fail(ans.Err)
		return
	}
	p.count(func(f *Resolved) { f.add(ans, state) })
}

// mayPass reports whether the error of a store may pass by itself.
func mayPass(err error) bool { return dedup.CanRetry(err) || dedup.OutcomeUnknown(err) }

// add counts an end that was written. One that was not was somebody else's to write.
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
