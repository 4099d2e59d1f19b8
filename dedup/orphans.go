package dedup

import (
	"context"
	"sync"
	"time"
)

const (
	// mostOrphans bounds the releases that are kept: of more, the oldest lapse with their leases.
	mostOrphans = 1024
	// orphansFor is for how long a store that does not answer is asked.
	orphansFor = 10 * time.Minute

	orphanBase   = 100 * time.Millisecond
	orphanAtMost = time.Second
)

// orphans are claims that nobody works under, and whose release the store has not answered.
// The releases are sent again until it does. A server that hangs executes the requests in its
// sockets when it wakes up, and each of those claims would hold its key for a whole lease from
// then on. One try at a time sends all releases. Between two tries there is a timer and no
// goroutine.
type orphans struct {
	mu      sync.Mutex
	list    []orphan
	next    *time.Timer // the next try; nil while one is under way
	tries   int         // in vain, in a row
	seeking bool        // there is a next try, or one is under way
	over    bool        // the Deduper is closed
}

type orphan struct {
	change Finish
	until  time.Duration // by Deduper.clock
	missed bool          // it was answered, and had nothing to release
}

// seeks reports whether the releases are being sent until the store answers, so that sending
// another one is of no use.
func (o *orphans) seeks() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seeking && !o.over
}

// keep has releases sent until they are answered.
func (d *Deduper) keep(changes []Finish) {
	if len(changes) == 0 {
		return
	}
	all := make([]orphan, len(changes))
	for i, change := range changes {
		all[i] = orphan{change: change, until: d.clock() + orphansFor}
	}
	o := &d.orphans
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.add(all); !o.seeking && !o.over {
		d.seekAfter(orphanBase)
	}
}

// add is called with the lock held.
func (o *orphans) add(all []orphan) {
	o.list = append(o.list, all...)
	if most := len(o.list) - mostOrphans; most > 0 {
		o.list = append([]orphan(nil), o.list[most:]...)
	}
}

// seekAfter has the next try made after a time. It is called with the lock held.
func (d *Deduper) seekAfter(wait time.Duration) {
	d.orphans.seeking = true
	d.orphans.next = time.AfterFunc(wait, func() {
		if d.takeTurn() {
			defer d.life.End()
			d.seek()
		}
	})
}

// takeTurn begins the try whose time has come, unless Close has made it.
func (d *Deduper) takeTurn() bool {
	o := &d.orphans
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.next == nil {
		return false
	}
	o.next = nil
	d.life.Begin()
	return true
}

// seekLast is for Close: it sends the releases that are left once more, and then no more.
func (d *Deduper) seekLast() {
	o := &d.orphans
	o.mu.Lock()
	pending := o.next
	o.next, o.over = nil, true
	o.mu.Unlock()
	if pending != nil {
		pending.Stop()
		d.seek()
	}
}

// seek sends the releases once, and sees to the next try if there is anything left.
func (d *Deduper) seek() {
	o := &d.orphans
	o.mu.Lock()
	all := o.list
	o.list = nil
	o.mu.Unlock()
	left, answers := d.releaseAgain(all)
	o.mu.Lock()
	defer o.mu.Unlock()
	came := o.list
	o.list = nil
	o.add(left)
	o.add(came)
	switch {
	case o.over, len(o.list) == 0:
		o.list, o.tries, o.seeking = nil, 0, false
	case answers:
		o.tries = 0
		d.seekAfter(d.cfg.StoreTimeout) // by when a claim on its way has arrived
	default:
		d.seekAfter(orphanBase + jitter(orphanBase, orphanAtMost, o.tries))
		o.tries++
	}
}

// releaseAgain returns what has to be sent once more, and whether the store answers. A claim
// may come to it after the release that was sent later, on another connection. So a release
// that found nothing to release is sent a second time.
func (d *Deduper) releaseAgain(all []orphan) (left []orphan, answers bool) {
	changes := make([]Finish, len(all))
	for i := range all {
		changes[i] = all[i].change
	}
	now := d.clock()
	for i, ans := range d.sendChanges(context.Background(), changes) {
		o := all[i]
		answers = answers || ans.Err == nil
		switch {
		case ans.Err != nil && passes(ans.Err) && now < o.until:
			left = append(left, o)
		case ans.Err == nil && !ans.Written && !o.missed:
			o.missed = true
			left = append(left, o)
		default:
			d.ended(o.change.ID)
		}
	}
	return left, answers
}
