package dedup

import (
	"context"
	"sync"
	"time"
)

const (
	// mostOrphans bounds the releases that are kept: of more, the oldest lapse with their leases.
	mostOrphans = 1024
	// orphansFor is for how long a store is asked that does not answer.
	orphansFor = 10 * time.Minute

	orphanBase   = 100 * time.Millisecond
	orphanAtMost = time.Second
)

// orphans are claims that nobody works under, and whose release the store has not answered.
// They are sent again until it does: a server that hangs executes what waits in its sockets
// when it wakes up, and each of those claims would hold its key for a whole lease from then on.
// One goroutine, which exists only while there are some, does it for all.
type orphans struct {
	mu     sync.Mutex
	list   []orphan
	sought bool // by a goroutine
}

type orphan struct {
	change Change
	until  time.Duration // by Deduper.clock
	missed bool          // it was answered, and had nothing to release
}

// seeks reports whether the store is being asked until it answers, so that there is no use
// in asking besides.
func (o *orphans) seeks() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sought
}

// take empties the list. Of nothing it notes that the goroutine ends.
func (o *orphans) take() []orphan {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.list
	o.list = nil
	o.sought = len(all) > 0
	return all
}

// put adds to the list, and reports whether nobody looks after it.
func (o *orphans) put(all []orphan) (alone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, all...)
	if most := len(o.list) - mostOrphans; most > 0 {
		o.list = append([]orphan(nil), o.list[most:]...)
	}
	alone = !o.sought && len(o.list) > 0
	o.sought = o.sought || alone
	return alone
}

// keep has releases sent until they are answered.
func (d *Deduper) keep(changes []Change) {
	if len(changes) == 0 || d.life.closed() {
		return
	}
	all := make([]orphan, len(changes))
	for i, change := range changes {
		all[i] = orphan{change: change, until: d.clock() + orphansFor}
	}
	if !d.orphans.put(all) {
		return
	}
	d.life.begin()
	go func() {
		defer d.life.end()
		d.seek()
	}()
}

// seek sends the releases until there are none left, or the Deduper is closed: then once more.
func (d *Deduper) seek() {
	wait := orphanBase
	for try := 0; ; try++ {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-d.life.closing:
			timer.Stop()
		}
		all := d.orphans.take()
		if len(all) == 0 {
			return
		}
		left, answers := d.releaseAgain(all)
		if wait = orphanBase + jitter(orphanBase, orphanAtMost, try); answers {
			try, wait = 0, d.cfg.StoreTimeout // by when a claim on its way has arrived
		}
		if !d.life.closed() {
			d.orphans.put(left)
		}
	}
}

// releaseAgain returns what has to be sent once more, and whether the store answers. A claim
// may come to it after the release that was sent later, on another connection: what had
// nothing to release is sent a second time.
func (d *Deduper) releaseAgain(all []orphan) (left []orphan, answers bool) {
	changes := make([]Change, len(all))
	for i := range all {
		changes[i] = all[i].change
	}
	now := d.clock()
	for i, ans := range d.sendChanges(context.Background(), changes) {
		o := all[i]
		answers = answers || ans.Err == nil
		switch {
		case ans.Err != nil && Retryable(ans.Err) && now < o.until:
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
