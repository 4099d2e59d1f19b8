package pipeline

import (
	"sync"
	"time"
)

// Reason is a set of causes for which a partition is paused.
type Reason uint8

// The causes. [Backpressure.Check] sets Backlog, the caller the others.
const (
	// Backlog means that too much is in flight.
	Backlog Reason = 1 << iota
	// StoreDown means that the store cannot be asked: nothing may run.
	StoreDown
	// NotOwned means that the partition is not owned: nothing may run.
	NotOwned
)

// BackpressureConfig has the marks and functions of a [Backpressure]. All of them are required, and
// are not checked.
type BackpressureConfig struct {
	// High pauses: the partition is paused when Level is at High or above.
	High int
	// Low resumes: a partition paused for its backlog continues when Level is at Low or
	// below. It must be below High; the distance keeps a partition from flapping.
	Low int
	// Level is how much is in flight, usually [Tracker.Len].
	Level func() int
	// Pause and Resume stop and restart fetching of the partition. Both must tolerate one that has
	// been revoked.
	Pause, Resume func()
}

// Backpressure pauses a partition while at least one reason to do so holds, and resumes it
// when the last one is gone. Messages that the client has fetched still arrive: keep
// reading them, since a reader that stops throttles its neighbors on the same broker.
//
// All methods are safe for concurrent use. The functions of the config are called
// under the Backpressure's lock, never two at a time: they must return without waiting and
// must not call the Backpressure.
type Backpressure struct {
	cfg BackpressureConfig

	mu      sync.Mutex
	held    Reason
	closed  bool
	since   time.Time     // start of the current pause, if held
	elapsed time.Duration // all pauses that have ended
}

// NewBackpressure returns an open Backpressure.
func NewBackpressure(cfg BackpressureConfig) *Backpressure { return &Backpressure{cfg: cfg} }

// Check reads Level and holds or releases Backlog. Call it after a batch was tracked.
//
// Check reads Level under the lock instead of taking it as an argument, because a number read
// outside can be old when it is applied. The reader reads "full", and the scheduler suspends it.
// The workers finish everything and find nothing to resume. Then the reader pauses the partition,
// and nobody is left to resume it.
func (b *Backpressure) Check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch level := b.cfg.Level(); {
	case level >= b.cfg.High:
		b.set(b.held | Backlog)
	case level <= b.cfg.Low:
		b.set(b.held &^ Backlog)
	}
}

// Ease is like Check, but never pauses. Call it after a slot was finished: there is less in flight
// than before, and whoever adds more calls Check.
func (b *Backpressure) Ease() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cfg.Level() <= b.cfg.Low {
		b.set(b.held &^ Backlog)
	}
}

// Hold adds reasons. Adding a reason that holds already changes nothing: reasons are not counted,
// so each needs one owner.
func (b *Backpressure) Hold(reasons Reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(b.held | reasons)
}

// Release takes reasons away. Releasing a reason that does not hold changes nothing.
func (b *Backpressure) Release(reasons Reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(b.held &^ reasons)
}

// Close resumes the partition if it is paused, and makes every later call do nothing. Call it
// however the claim ends: a client may remember the pause and start the partition's next claim
// paused. Close is idempotent.
func (b *Backpressure) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(0)
	b.closed = true
}

// Reasons returns the reasons that hold now; 0 means that the partition is not paused.
func (b *Backpressure) Reasons() Reason {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// Paused returns how long the partition has been paused in total, including the current pause.
func (b *Backpressure) Paused() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held == 0 {
		return b.elapsed
	}
	return b.elapsed + time.Since(b.since)
}

// set replaces the reasons that hold, and pauses or resumes the client on a transition.
func (b *Backpressure) set(reasons Reason) {
	if b.closed {
		return
	}
	before := b.held
	b.held = reasons
	switch {
	case before == 0 && reasons != 0:
		b.since = time.Now()
		b.cfg.Pause()
	case before != 0 && reasons == 0:
		b.elapsed += time.Since(b.since)
		b.cfg.Resume()
	}
}
