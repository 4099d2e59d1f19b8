package dedup

import (
	"context"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/ctxend"
	"github.com/onceward/onceward/dedup/internal/pause"
)

const (
	// mostReleases bounds the releases that are kept. Beyond it the oldest are left to lapse.
	mostReleases = 1024
	// releasesFor is how long a release is sent again while the store does not answer.
	releasesFor = 10 * time.Minute

	releaseBase   = 100 * time.Millisecond
	releaseAtMost = time.Second
)

// pendingReleases are releases that the store has not answered, of claims that nobody works under.
// They are sent again until it answers. A server that hangs executes the requests in its sockets
// when it wakes up, and each of those claims would hold its key for a whole lease from then on. One
// try at a time sends all releases. Between two tries there is a timer and no goroutine.
type pendingReleases struct {
	mu      sync.Mutex
	list    []pendingRelease
	next    *time.Timer // the next try; nil while one is under way
	tries   int         // failed tries in a row
	seeking bool        // there is a next try, or one is under way
	over    bool        // the Deduper is closed
}

type pendingRelease struct {
	change driver.Finish
	until  time.Duration // by Deduper.clock
	missed bool          // the store answered that there was nothing to release
}

// seeks reports whether the pending releases are already being sent again, so that another one
// should join them.
func (p *pendingReleases) seeks() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seeking && !p.over
}

// keep adds releases that are to be sent until the store answers them.
func (d *Deduper) keep(changes []driver.Finish) {
	if len(changes) == 0 {
		return
	}
	all := make([]pendingRelease, len(changes))
	for i, change := range changes {
		all[i] = pendingRelease{change: change, until: d.clock() + releasesFor}
	}
	p := &d.releases
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.add(all); !p.seeking && !p.over {
		d.seekAfter(releaseBase)
	}
}

// add is called with the lock held.
func (p *pendingReleases) add(all []pendingRelease) {
	p.list = append(p.list, all...)
	if most := len(p.list) - mostReleases; most > 0 {
		p.list = append([]pendingRelease(nil), p.list[most:]...)
	}
}

// seekAfter schedules the next try. It is called with the lock held.
func (d *Deduper) seekAfter(wait time.Duration) {
	d.releases.seeking = true
	d.releases.next = time.AfterFunc(wait, func() {
		if d.takeTry() {
			defer d.life.End()
			d.seek()
		}
	})
}

// takeTry begins the try whose time has come, unless Close has made it.
func (d *Deduper) takeTry() bool {
	p := &d.releases
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		return false
	}
	p.next = nil
	d.life.Begin()
	return true
}

// seekLast is for Close: it sends the releases that are left once more, and then no more.
func (d *Deduper) seekLast() {
	p := &d.releases
	p.mu.Lock()
	pending := p.next
	p.next, p.over = nil, true
	p.mu.Unlock()
	if pending != nil {
		pending.Stop()
		d.seek()
	}
}

// seek sends the releases once, and schedules the next try if any are left.
func (d *Deduper) seek() {
	p := &d.releases
	p.mu.Lock()
	all := p.list
	p.list = nil
	p.mu.Unlock()
	left, answers := d.releaseAgain(all)
	p.mu.Lock()
	defer p.mu.Unlock()
	came := p.list
	p.list = nil
	p.add(left)
	p.add(came)
	switch {
	case p.over, len(p.list) == 0:
		p.list, p.tries, p.seeking = nil, 0, false
	case answers:
		p.tries = 0
		d.seekAfter(d.cfg.StoreTimeout) // by then a claim on its way has arrived
	default:
		d.seekAfter(releaseBase + pause.Jitter(releaseBase, releaseAtMost, p.tries))
		p.tries++
	}
}

// releaseAgain sends releases again. It returns those that are to be sent once more, and whether
// the store answers. A claim may reach the store after its release, which was sent later on another
// connection. So a release that found nothing to release is sent a second time.
func (d *Deduper) releaseAgain(all []pendingRelease) (left []pendingRelease, answers bool) {
	changes := make([]driver.Finish, len(all))
	for i := range all {
		changes[i] = all[i].change
	}
	now := d.clock()
	for i, ans := range d.sendChanges(context.Background(), changes) {
		p := all[i]
		answers = answers || ans.Err == nil
		switch {
		case ans.Err != nil && passes(ans.Err) && now < p.until:
			left = append(left, p)
		case ans.Err == nil && !ans.Written && !p.missed:
			p.missed = true
			left = append(left, p)
		default:
			d.endedBy(p.change.ID, &ans)
		}
	}
	return left, answers
}

// releaseAbandoned gives back claims whose callers were canceled while the store was
// asked. A request without an answer may have been executed too, or may be executed later:
// the store returned because its context had ended, and may have left it on its way.
func (d *Deduper) releaseAbandoned(calls []*oneCall) {
	var back, late []driver.Finish
	for _, c := range calls {
		ans, req := &c.Of.answer, c.Of.req
		switch {
		case req == nil: // an end
		case ans.Outcome == Acquired:
			back = append(back, d.releaseChange(&req[0]))
		case !mayHaveExecuted(ans.Err):
		case ctxend.Is(ans.Err):
			late = append(late, d.releaseChange(&req[0]))
		default:
			back = append(back, d.releaseChange(&req[0]))
		}
	}
	d.giveBack(back, false)
	d.giveBack(late, true)
}

// releaseChange makes the release of a claim that no caller got, so that no effect has run.
func (d *Deduper) releaseChange(req *driver.ClaimRequest) driver.Finish {
	return driver.Finish{ID: req.ID, Token: req.Token, State: driver.StateReleased,
		NotAttempted: true,
		Hold:         d.cfg.Hold, Window: req.Window}
}

// giveBack releases claims that nobody works under, after their callers got their answers.
// It only decides how soon the key can be claimed again. While the store does not answer, the
// releases gather in pendingReleases. A late claim may still be on its way to the store, on
// another connection than its release. A release that did not find its claim is sent again later,
// when the claim has arrived or never will arrive.
func (d *Deduper) giveBack(changes []driver.Finish, late bool) {
	if len(changes) == 0 {
		return
	}
	if d.releases.seeks() && !d.life.Closed() {
		d.keep(changes)
		return
	}
	d.life.Begin()
	go func() {
		defer d.life.End()
		if missed := d.release(changes); late && len(missed) > 0 {
			_ = pause.Sleep(context.Background(), d.cfg.StoreTimeout)
			d.release(missed)
		}
	}()
}

// release sends the releases and returns those that found nothing to release. Those that
// were not answered are kept.
func (d *Deduper) release(changes []driver.Finish) (missed []driver.Finish) {
	var answers []driver.Answer
	if len(changes) == 1 { // thousands of these may come at once
		ctx, cancel := context.WithTimeout(context.Background(), d.cfg.StoreTimeout)
		defer cancel()
		answers = []driver.Answer{d.askEnd(ctx, &[1]driver.Finish{changes[0]})}
	} else {
		answers = d.sendChanges(context.Background(), changes)
	}
	var unanswered []driver.Finish
	for i, ans := range answers {
		switch {
		case ans.Err != nil:
			d.storeError(changes[i].ID, ans.Err)
			if passes(ans.Err) {
				unanswered = append(unanswered, changes[i])
			}
		case !ans.Written:
			missed = append(missed, changes[i])
		}
		d.endedBy(changes[i].ID, &ans)
	}
	d.keep(unanswered)
	return missed
}
