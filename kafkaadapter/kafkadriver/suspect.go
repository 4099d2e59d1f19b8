package kafkadriver

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
)

const (
	// suspectAfter is the number of attempts elsewhere that makes a message a suspect.
	suspectAfter = 2
	// standByFor is about how long a suspect waits before it looks whether another one still runs.
	standByFor = 100 * time.Millisecond
)

// suspects are messages that were claimed elsewhere, at least twice, and are not done: each has
// failed there, or may be what kills processes. In all partitions of this process only one of them
// runs at a time. A suspect needs this turn before the store is asked about it, because the
// question counts an attempt.
//
// A message that kills its process within a millisecond takes down every other message that is
// claimed by then, and the same neighbors again after each restart. If they ran side by side, all
// would reach the limit of attempts together. So at most its first two crashes count against its
// neighbors.
type suspects struct {
	at atomic.Pointer[item] // that runs; nil: none
}

// begin reports whether the item is the one that may run; it stays that until end.
func (s *suspects) begin(it *item) bool {
	return s.at.CompareAndSwap(nil, it) || s.at.Load() == it
}

// end lets another suspect run, if the item is the one that may. It reads before it writes: nearly
// every message of all partitions comes here.
func (s *suspects) end(it *item) {
	if s.at.Load() == it {
		s.at.CompareAndSwap(it, nil)
	}
}

// unknown reports whether this process does not know if others have claimed the message. The
// message is then claimed only if nobody else has: an attempt counts when the message is claimed.
func (p *Partition) unknown(it *item) bool {
	return p.cfg.Attempts.Max > 0 && it.before == 0 && it.tries == 0 && !it.uncertain
}

// left reports whether the store left a message alone because others have claimed it, although
// nobody holds it now.
func (p *Partition) left(it *item, c *dedup.Claim) bool {
	return p.unknown(it) && c.Outcome == dedup.InFlight && c.Record.Remaining <= 0 &&
		c.Record.Attempt > 0
}

// noteAttempts notes the attempts of others. A claim that is in flight elsewhere counts, too: it
// will have ended when the message is won here.
func (p *Partition) noteAttempts(it *item, c *dedup.Claim) {
	if c.Outcome == dedup.InFlight || c.Outcome == dedup.Uncertain {
		it.before = max(it.before, c.Record.Attempt)
	}
}

// mayAsk reports whether the store may be asked about a message now; the question may win its
// claim. A message that has failed in this very process has shown that it does not kill it.
func (p *Partition) mayAsk(it *item) bool {
	if p.cfg.Attempts.Max == 0 || it.tries > 0 || it.before < suspectAfter {
		return true
	}
	if !p.cfg.suspects.begin(it) {
		return false
	}
	it.wait().standing = time.Time{}
	return true
}

// standBy is how long a suspect waits before it tries again to be the one that runs. The messages
// behind it in its queue give up their claims soon.
func (p *Partition) standBy(it *item) time.Duration {
	w := it.wait()
	if w.standing.IsZero() {
		w.standing = time.Now()
	}
	if time.Since(w.standing) >= yieldAfter {
		p.yield(it)
	}
	return standByFor/2 + rand.N(standByFor)
}

// passOn lets another suspect run, unless this one is about to run.
func (p *Partition) passOn(it *item) {
	if it.claim == nil && !it.uncertain {
		p.cfg.suspects.end(it)
	}
}
