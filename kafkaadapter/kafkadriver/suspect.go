package kafkadriver

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
)

const (
	// suspectAfter is how many attempts elsewhere make a suspect.
	suspectAfter = 2
	// standByFor is about how long a suspect waits before it looks whether another one
	// still runs.
	standByFor = 100 * time.Millisecond
)

// suspects are messages that were claimed elsewhere, twice at least, and are not done:
// each has failed there, or may be what kills processes. One of them runs at a time in all
// partitions of this process, from before it is asked about, which counts an attempt.
//
// A message that kills its process within a millisecond takes everything with it that was
// claimed by then, and the same neighbors again after each restart: side by side they
// would all come to the cap together. So they share its first two deaths at most.
type suspects struct {
	at atomic.Pointer[item] // that runs; nil: none
}

// begin reports whether the item is the one that may run; it stays that until end.
func (s *suspects) begin(it *item) bool {
	return s.at.CompareAndSwap(nil, it) || s.at.Load() == it
}

// end lets another one run, if the item is the one that may. It looks before it writes: nearly
// every message comes here, and of all partitions.
func (s *suspects) end(it *item) {
	if s.at.Load() == it {
		s.at.CompareAndSwap(it, nil)
	}
}

// unknown reports whether it is not known if others have claimed the message. It is then
// asked for only if nobody has: an attempt counts when it is claimed.
func (p *Partition) unknown(it *item) bool {
	return p.cfg.Attempts.Max > 0 && it.before == 0 && it.tries == 0 && !it.uncertain
}

// left reports whether a message was left alone because others have claimed it, and
// nobody holds it now.
func (p *Partition) left(it *item, c *dedup.Claim) bool {
	return p.unknown(it) && c.Outcome == dedup.InFlight && c.Record.Remaining <= 0 &&
		c.Record.Attempt > 0
}

// noteAttempts notes the attempts of others: those of a claim that is in flight elsewhere, too,
// which will have ended when the message is won here.
func (p *Partition) noteAttempts(it *item, c *dedup.Claim) {
	if c.Outcome == dedup.InFlight || c.Outcome == dedup.Uncertain {
		it.before = max(it.before, c.Record.Attempt)
	}
}

// mayAsk reports whether a message may be asked about now, which may win it. One that has
// failed in this very process has shown that it does not kill it.
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

// standBy is how long a suspect waits before it tries again to be the one that runs. Those
// behind it in its queue do not keep their claims for long.
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

// passOn lets another suspect run unless this one is going to.
func (p *Partition) passOn(it *item) {
	if it.claim == nil && !it.uncertain {
		p.cfg.suspects.end(it)
	}
}
