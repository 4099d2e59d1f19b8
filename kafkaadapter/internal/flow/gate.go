package flow

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// DefaultHigh is the default of [GateConfig].High: eight batches of the default size.
const DefaultHigh = 2048

// Reason is a set of causes for which a partition is paused.
type Reason uint8

// The causes. Backlog belongs to [Gate.Check], the others to the caller.
const (
	// Backlog means that too much is in flight.
	Backlog Reason = 1 << iota
	// StoreDown means that the store cannot be asked: nothing may run.
	StoreDown
	// NotOwned means that the partition is not owned: nothing may run.
	NotOwned
)

// String returns the names of the causes joined by "+", and "none" for no cause.
func (r Reason) String() string {
	var names []string
	for _, one := range []struct {
		reason Reason
		name   string
	}{{Backlog, "backlog"}, {StoreDown, "store down"}, {NotOwned, "not owned"}} {
		if r&one.reason != 0 {
			names = append(names, one.name)
			r &^= one.reason
		}
	}
	if r != 0 {
		names = append(names, fmt.Sprintf("Reason(%#x)", uint8(r)))
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, "+")
}

// GateConfig lends a [Gate] what it works with.
type GateConfig struct {
	// High pauses: the partition is paused when Level is at High or above.
	// Default: [DefaultHigh].
	High int
	// Low resumes: a partition paused for its backlog goes on when Level is at Low or
	// below. It must be below High; the distance keeps a partition from flapping.
	// Default: half of High.
	Low int
	// Level tells how much is in flight, usually [Tracker.Len]. Required.
	Level func() int
	// Pause and Resume stop and restart fetching of the partition. Both are required,
	// and must tolerate a partition that has been revoked.
	Pause, Resume func()
}

// Gate pauses a partition while at least one reason to do so holds, and resumes it
// when the last one is gone. What the client has fetched already still arrives: keep
// reading it, since a reader that stops throttles its neighbours on the same broker.
//
// All methods are safe for concurrent use. The functions of the config are called
// under the Gate's lock, never two at a time: they must return without waiting and
// must not call the Gate.
type Gate struct {
	cfg GateConfig

	mu      sync.Mutex
	held    Reason
	closed  bool
	since   time.Time     // start of the current pause, if held
	elapsed time.Duration // all pauses that have ended
}

// NewGate returns an open Gate. It returns an error that names the field for a
// missing function, a negative mark, or a Low that is not below High.
func NewGate(cfg GateConfig) (*Gate, error) {
	switch {
	case cfg.Level == nil:
		return nil, errors.New("flow: Gate needs Level")
	case cfg.Pause == nil || cfg.Resume == nil:
		return nil, errors.New("flow: Gate needs Pause and Resume")
	case cfg.High < 0:
		return nil, fmt.Errorf("flow: High is negative: %d", cfg.High)
	case cfg.Low < 0:
		return nil, fmt.Errorf("flow: Low is negative: %d", cfg.Low)
	}
	if cfg.High == 0 {
		cfg.High = DefaultHigh
	}
	if cfg.Low == 0 {
		cfg.Low = cfg.High / 2
	}
	if cfg.Low >= cfg.High {
		return nil, fmt.Errorf("flow: Low %d is not below High %d", cfg.Low, cfg.High)
	}
	return &Gate{cfg: cfg}, nil
}

// Check reads Level and holds or releases Backlog. Call it after a batch was tracked.
//
// Level is read under the lock and not handed in, because a number read outside can
// be old when it is applied: the reader reads "full" and is put aside; the workers
// finish everything and find nothing to resume; the reader pauses the partition,
// and nobody is left who would ever resume it.
func (g *Gate) Check() {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch level := g.cfg.Level(); {
	case level >= g.cfg.High:
		g.set(g.held | Backlog)
	case level <= g.cfg.Low:
		g.set(g.held &^ Backlog)
	}
}

// Ease is Check that never holds. Call it after a slot was finished: there is less in
// flight than before, and whoever added it decides whether it is too much.
func (g *Gate) Ease() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cfg.Level() <= g.cfg.Low {
		g.set(g.held &^ Backlog)
	}
}

// Hold adds reasons. Holding what is held already changes nothing: reasons are not
// counted, so each needs one owner.
func (g *Gate) Hold(reasons Reason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set(g.held | reasons)
}

// Release takes reasons away. Releasing what is not held changes nothing.
func (g *Gate) Release(reasons Reason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set(g.held &^ reasons)
}

// Close resumes the partition if it is paused, and makes every later call do
// nothing. Call it when the claim ends, whatever the way: a client may remember the
// pause and start the partition's next claim paused. Close is idempotent.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set(0)
	g.closed = true
}

// Reasons returns what holds now; 0 means that the partition is not paused.
func (g *Gate) Reasons() Reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// Paused returns how long the partition has been paused in all, the current pause
// included.
func (g *Gate) Paused() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held == 0 {
		return g.elapsed
	}
	return g.elapsed + time.Since(g.since)
}

// set makes reasons the held ones and tells the client about a transition.
func (g *Gate) set(reasons Reason) {
	if g.closed {
		return
	}
	before := g.held
	g.held = reasons
	switch {
	case before == 0 && reasons != 0:
		g.since = time.Now()
		g.cfg.Pause()
	case before != 0 && reasons == 0:
		g.elapsed += time.Since(g.since)
		g.cfg.Resume()
	}
}
