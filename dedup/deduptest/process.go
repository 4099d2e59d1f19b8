package deduptest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// blow is what happens to one call of a process.
type blow string

const (
	nothing     blow = ""
	crashBefore blow = "crash before" // the store never hears of the call, and the process dies
	crashAfter  blow = "crash after"  // the store has executed it
	loseRequest blow = "lost request of"
	loseReply   blow = "lost reply of"
	pauseBefore blow = "pause before" // of two leases; the request arrives after it
	pauseAfter  blow = "pause after"
)

// fate says what happens to a process at its nth call, from 1.
type fate func(op Op, n int) blow

// process simulates a process: it is the store of a Deduper of its own. After a crash none of its
// calls returns until it is buried, and so nothing after the call happens.
type process struct {
	store driver.Store
	lease time.Duration
	d     *dedup.Deduper
	fate  fate
	ctx   context.Context
	end   context.CancelFunc

	crashed, buried, done chan struct{}
	err                   error // of Deliver, when done is closed

	mu      sync.Mutex
	calls   int
	faults  int
	exposed bool // a fault hit a call that holds on to a claim, or ends it
	dead    bool
	told    []string
}

func (tr *trial) start(plan fate) *process {
	p := &process{
		store: tr.store, lease: tr.Config.LeaseTTL, fate: plan,
		crashed: make(chan struct{}), buried: make(chan struct{}), done: make(chan struct{}),
	}
	p.ctx, p.end = context.WithCancel(tr.ctx)
	var err error
	if p.d, err = dedup.New(p, tr.Config); err != nil {
		panic(err) // the same was accepted by newTrial
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.processes = append(tr.processes, p)
	return p
}

// bury lets all calls of the process return, and waits for its end.
func (p *process) bury() {
	p.end()
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	close(p.buried)
	<-p.done
	ctx, cancel := context.WithTimeout(context.Background(), p.lease)
	defer cancel()
	_ = p.d.Close(ctx) // what it was about to say is of no interest
}

// Claim implements [driver.Store].
func (p *process) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	return meet(ctx, p, OpClaim, reqs, p.store.Claim, unlearnt)
}

// Renew implements [driver.Store].
func (p *process) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	return meet(ctx, p, OpRenew, renewals, p.store.Renew, unlearnt)
}

// Finish implements [driver.Store].
func (p *process) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	return meet(ctx, p, OpFinish, changes, p.store.Finish, unlearnt)
}

// Lookup implements [driver.Store].
func (p *process) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	return meet(ctx, p, OpLookup, ids, p.store.Lookup, unlearnt)
}

// Forget implements [driver.Store].
func (p *process) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	send := func(ctx context.Context, ids []driver.ID) []error {
		return p.store.Forget(ctx, ids, hold)
	}
	return meet(ctx, p, OpForget, ids, send, func(err error) error { return err })
}

// meet sends one batch, unless the blow that next returns for the call prevents that.
func meet[Item, Reply any](
	ctx context.Context, p *process, op Op, items []Item,
	send func(context.Context, []Item) []Reply, lose func(error) Reply,
) []Reply {
	b := p.next(op)
	switch b {
	case crashAfter:
		send(ctx, items)
		p.die()
	case crashBefore:
		p.die()
	case pauseBefore:
		p.pause()
		ctx = context.WithoutCancel(ctx) // it was on its way
	}
	var replies []Reply
	switch b {
	case nothing, pauseBefore:
		return send(ctx, items)
	case pauseAfter:
		replies = send(ctx, items)
		p.pause()
		return replies
	case loseReply:
		send(ctx, items)
	}
	for range items {
		replies = append(replies, lose(fmt.Errorf("%w: %s %s", ErrInjected, b, op)))
	}
	return replies
}

// next counts a call and says what happens to it.
func (p *process) next(op Op) blow {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return crashBefore
	}
	p.calls++
	b := p.fate(op, p.calls)
	if b == nothing {
		return b
	}
	p.faults++
	// A claim that was not answered in time must not be used, so a fault there does not excuse a
	// second effect.
	p.exposed = p.exposed || op == OpRenew || op == OpFinish
	p.told = append(p.told, fmt.Sprintf("%s %s (call %d)", b, op, p.calls))
	if b == crashBefore || b == crashAfter {
		p.dead = true
	}
	return b
}

// die marks the process as crashed, if it is not, and returns when it is buried.
func (p *process) die() {
	p.mu.Lock()
	select {
	case <-p.crashed:
	default:
		close(p.crashed)
	}
	p.mu.Unlock()
	<-p.buried
}

func (p *process) pause() {
	timer := time.NewTimer(2 * p.lease)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.buried:
	}
}
