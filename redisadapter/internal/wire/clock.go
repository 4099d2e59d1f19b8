package wire

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// clockAge is how old an estimate may become before the next call asks again.
	clockAge = 5 * time.Second
	// ClockLimit is how old an estimate may be if it is used while another call asks.
	ClockLimit = 10 * time.Second
	// ClockDrift bounds how far two clocks drift apart in that time: by a thousandth, because NTP
	// may slew each of them by 500 ppm.
	ClockDrift = 1000
	// clockPatience is how long a call waits for the answer, and clockPause how long
	// after a failure nobody asks.
	clockPatience, clockPause = 250 * time.Millisecond, time.Second
)

// Clock estimates the server's time from our clock, so that a claim can carry a fence, and a record
// its age, without a script. On a Cluster it follows the master whose clock is furthest ahead:
// fences must grow, whichever master hands them out.
type Clock struct {
	Client redis.UniversalClient
	// Exact makes the clock ask before every use, and use only the answer: for an embedded server,
	// whose clock a test moves, or stops.
	Exact bool

	Asking sync.Mutex
	Tried  time.Time // guarded by asking
	Mu     sync.Mutex
	Est    Estimate
}

// Estimate is what the server said, and when.
type Estimate struct {
	Server   time.Time // the server's time when it answered
	Received time.Time // our time when the answer had come: the server is not behind this
	Error    time.Duration
}

// usable reports whether the estimate may be used. fresh reports whether it is so new that nobody
// need ask again.
func (e *Estimate) usable() bool {
	return !e.Received.IsZero() && time.Since(e.Received) <= ClockLimit
}

func (e *Estimate) fresh() bool {
	return !e.Received.IsZero() && time.Since(e.Received) < clockAge && e.Error < clockPatience
}

// off returns how far the estimate may be behind the server's clock now.
func (e *Estimate) off() time.Duration { return e.Error + 2*time.Since(e.Received)/ClockDrift }

// Reading is a moment of the server's clock that has certainly passed, at most Error ago.
type Reading struct {
	At    time.Time
	Error time.Duration
}

// Known is false when the server has not told its time.
func (r Reading) Known() bool { return !r.At.IsZero() }

// Fence returns the moment as a fence: 1024 fences to the millisecond, as in record.lua.
func (r Reading) Fence() uint64 {
	us := uint64(max(r.At.UnixMicro(), 0))
	return us/1000*1024 + us%1000
}

// Millis returns the moment in milliseconds, as records hold it.
func (r Reading) Millis() int64 { return r.At.UnixMilli() }

// Now returns the server's time, after a round trip when the last answer is old. Without
// an answer the reading is not known.
func (c *Clock) Now(ctx context.Context) Reading {
	if c.Exact {
		return c.asked(ctx)
	}
	est := c.last()
	switch {
	case !est.usable():
		c.Asking.Lock()
		c.refresh(ctx)
		c.Asking.Unlock()
		est = c.last()
	case !est.fresh() && c.Asking.TryLock():
		c.refresh(ctx)
		c.Asking.Unlock()
		est = c.last()
	}
	if !est.usable() {
		return Reading{}
	}
	age := time.Since(est.Received)
	return Reading{est.Server.Add(age - age/ClockDrift), est.off()}
}

// asked does the work of Now without using an estimate. A test's clock may stand still while ours
// runs: an estimate would be ahead of it, and would count time as certainly passed that has not
// passed.
func (c *Clock) asked(ctx context.Context) Reading {
	c.Asking.Lock()
	defer c.Asking.Unlock()
	sent := time.Now()
	c.refresh(ctx)
	est := c.last()
	if est.Received.Before(sent) {
		return Reading{}
	}
	return Reading{est.Server, est.off() + time.Since(est.Received)}
}

func (c *Clock) last() Estimate {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.Est
}

// refresh asks, unless another call did while we waited for our turn, or nobody answered a moment
// ago: in that case the scripts answer with the time.
func (c *Clock) refresh(ctx context.Context) {
	if last := c.last(); !c.Exact && (last.fresh() || time.Since(c.Tried) < clockPause) {
		return
	}
	c.Tried = time.Now()
	heard, sent := &hearing{}, c.Tried
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.ask(context.WithoutCancel(ctx), heard)
		c.adopt(heard, time.Since(sent) > clockPatience) // even when nobody waits for it any more
	}()
	patience := time.NewTimer(clockPatience)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		c.adopt(heard, false)
	case <-ctx.Done():
	}
}

// adopt takes the best answer as the estimate, unless there is a newer one. A late answer is
// inexact, so it is taken only if the present estimate cannot be used or is no more exact.
func (c *Clock) adopt(heard *hearing, late bool) {
	heard.mu.Lock()
	best := heard.best
	heard.mu.Unlock()
	c.Mu.Lock()
	defer c.Mu.Unlock()
	switch {
	case best.Server.IsZero(), best.Received.Before(c.Est.Received):
	case late && c.Est.usable() && best.Error > c.Est.off():
	default:
		c.Est = best
	}
}

// hearing is one round of asking, and holds the best answer so far.
type hearing struct {
	mu   sync.Mutex
	best Estimate
}

// add takes an answer if it is the first, or of a server that is further ahead.
func (h *hearing) add(e Estimate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.best.Server.IsZero() || e.Server.Sub(h.best.Server) > e.Received.Sub(h.best.Received) {
		h.best = e
	}
}

// ask asks the server for its time, or every master of a Cluster. A master that hangs must not keep
// the others from being heard.
func (c *Clock) ask(ctx context.Context, heard *hearing) {
	one := func(ctx context.Context, node redis.Cmdable) error {
		sent := time.Now()
		at, err := node.Time(ctx).Result()
		if err == nil {
			received := time.Now()
			heard.add(Estimate{Server: at, Received: received, Error: received.Sub(sent)})
		}
		return err
	}
	if cluster, ok := c.Client.(*redis.ClusterClient); ok {
		_ = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return one(ctx, node)
		})
		return
	}
	_ = one(ctx, c.Client)
}
