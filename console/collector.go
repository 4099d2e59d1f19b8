package console

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

const (
	// minutes is how long counts are kept.
	minutes = 60
	// ageBins divide the window; one more is for ages beyond it.
	ageBins = 20
	// maxSources is how many sources have counts of their own. All further sources share one.
	maxSources = 32

	outcomes = int(dedup.Uncertain) + 1
	causes   = 7 // six, and one for causes that this version does not know
)

// otherSources is the common name of all sources that came after the first maxSources. The age of
// each duplicate is counted as a share of its own source's window.
const otherSources = "(others)"

// causeNames are the causes, in the order in which they are counted and shown.
var causeNames = [causes]string{
	string(driver.BrokerRedelivery), string(driver.RebalanceReplay), string(driver.ProducerRetry),
	string(driver.KeyReuse), string(driver.Late), string(driver.OtherSource), "other",
}

// Tallies are counted in addition to outcomes and causes.
const (
	wouldSkip = iota
	cached
	succeeded
	failed
	released
	endedUncertain
	uncertain
	leaseLost
	storeErrors
	failedOpen
	ageless // duplicates whose layout keeps no age
	tallies
)

// bucket counts what one source did in one minute. It is never used for another minute: if a
// goroutine still has it when a newer bucket takes its place in the ring, the goroutine adds to
// counts that nobody reads.
type bucket struct {
	minute  int64
	outcome [outcomes]atomic.Uint64
	cause   [causes]atomic.Uint64
	age     [ageBins + 1]atomic.Uint64
	tally   [tallies]atomic.Uint64
	oldest  atomic.Int64 // in millionths of the window
}

// source counts what Dedupers of one name did in the last hour.
type source struct {
	name   string
	window time.Duration // zero when the Dedupers have several
	start  time.Time

	mu   sync.Mutex // held to begin a minute
	ring [minutes]atomic.Pointer[bucket]
}

// now is the running minute. The minute is counted from the start of the Console by the monotonic
// clock, which never goes back.
func (s *source) now() int64 { return int64(time.Since(s.start) / time.Minute) }

// current returns the bucket of the running minute.
func (s *source) current() *bucket {
	minute := s.now()
	place := &s.ring[minute%minutes]
	if b := place.Load(); b != nil && b.minute >= minute {
		return b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := place.Load()
	if b == nil || b.minute < minute {
		b = &bucket{minute: minute}
		place.Store(b)
	}
	return b
}

func (s *source) add(what int) { s.current().tally[what].Add(1) }

func (s *source) claimed(e *dedup.Event, window time.Duration) {
	b := s.current()
	outcome := int(e.Outcome)
	if outcome >= outcomes {
		outcome = int(dedup.Unknown)
	}
	b.outcome[outcome].Add(1)
	if e.Cached {
		b.tally[cached].Add(1)
	}
	if e.Cause != "" {
		b.cause[causeIndex(e.Cause)].Add(1)
	}
	if e.Outcome != dedup.Duplicate {
		return
	}
	if e.Age <= 0 {
		b.tally[ageless].Add(1)
		return
	}
	share := int64(float64(e.Age) / float64(window) * million)
	b.age[min(share*ageBins/million, ageBins)].Add(1)
	for {
		oldest := b.oldest.Load()
		if share <= oldest || b.oldest.CompareAndSwap(oldest, share) {
			return
		}
	}
}

// million is the denominator of a share.
const million = 1_000_000

func causeIndex(c driver.Cause) int {
	for i, name := range causeNames[:causes-1] {
		if name == string(c) {
			return i
		}
	}
	return causes - 1
}

// ended counts how an attempt ended.
func (s *source) ended(e *dedup.Event) {
	switch e.State {
	case driver.StateSucceeded:
		s.add(succeeded)
	case driver.StateFailed:
		s.add(failed)
	case driver.StateReleased:
		s.add(released)
	}
}

// doubted counts a key that was found uncertain, or that an attempt has left uncertain. If an
// attempt left the key uncertain, the event has the state that the attempt asked for; if it asked
// for a release, its Ended event has come before.
func (s *source) doubted(e *dedup.Event) {
	if e.State == driver.StateReleased {
		s.add(endedUncertain)
		return
	}
	s.add(uncertain)
}

// Observer returns the hooks for the [dedup.Config].Observer of every Deduper that is to be counted
// under this name, which is usually the Deduper's namespace or a topic and has 1 to 64 bytes. The
// window is the Deduper's Window; ages of duplicates are shown as shares of it. A second call with
// the same name must have the same window, and continues the counts of that name.
//
// Each of the first 32 names has its own counts. All further names share their counts, so that
// names made from data cannot fill the memory. Counts are kept for an hour, by minutes. The console
// sees only events of this process. The error names the argument that is wrong.
func (c *Console) Observer(name string, window time.Duration) (dedup.Observer, error) {
	switch {
	case name == "" || len(name) > maxName:
		return dedup.Observer{}, &dedup.InputError{Field: "name",
			Reason: fmt.Sprintf("has %d bytes; 1 to %d are allowed", len(name), maxName)}
	case window <= 0:
		return dedup.Observer{}, &dedup.InputError{Field: "window",
			Reason: fmt.Sprintf("is %v; it must be positive", window)}
	}
	s, err := c.source(name, window)
	if err != nil {
		return dedup.Observer{}, err
	}
	return dedup.Observer{
		Claimed:    func(e dedup.Event) { s.claimed(&e, window) },
		WouldSkip:  func(dedup.Event) { s.add(wouldSkip) },
		Ended:      func(e dedup.Event) { s.ended(&e) },
		Uncertain:  func(e dedup.Event) { s.doubted(&e) },
		LeaseLost:  func(dedup.Event) { s.add(leaseLost) },
		StoreError: func(dedup.Event) { s.add(storeErrors) },
		FailedOpen: func(dedup.Event) { s.add(failedOpen) },
	}, nil
}

// source finds or makes the counts of a name.
func (c *Console) source(name string, window time.Duration) (*source, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sources {
		if s.name != name {
			continue
		}
		if s.window != window {
			return nil, &dedup.InputError{Field: "window",
				Reason: fmt.Sprintf("is %v; %q was counted against %v before",
					window, name, s.window)}
		}
		return s, nil
	}
	s := &source{name: name, window: window, start: c.start}
	if len(c.sources) < maxSources {
		c.sources = append(c.sources, s)
		return s, nil
	}
	if c.others == nil {
		c.others = &source{name: otherSources, start: c.start}
	}
	return c.others, nil
}
