package redisadapter

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// clockAge is how old an estimate may become before the next call asks again, and
	// clockLimit how old it may be used while another call is asking.
	clockAge, clockLimit = 5 * time.Second, 10 * time.Second
	// clockDrift bounds how far two clocks drift apart in that time: 500 ppm, what NTP
	// may slew a clock by, of each.
	clockDrift = 1000
	// clockPatience is how long a call waits for the answer, and clockPause how long
	// after a failure nobody asks.
	clockPatience, clockPause = 250 * time.Millisecond, time.Second
)

// clock estimates the server's time on ours, so that a claim can carry a fence and a
// record its age without a script. On a Cluster it follows the master whose clock is
// furthest ahead: fences must grow whoever hands them out.
type clock struct {
	client redis.UniversalClient
	// exact asks before every use, and goes by nothing but the answer: for an embedded
	// server, whose clock a test moves, or lets stand still.
	exact bool

	asking sync.Mutex
	tried  time.Time // guarded by asking
	mu     sync.Mutex
	est    estimate
}

// estimate is what the server said, and when.
type estimate struct {
	server   time.Time // of the server, when it answered
	received time.Time // ours, when the answer had come: the server is not behind this
	error    time.Duration
}

// usable reports whether the estimate may be used, and fresh, that nobody need ask again.
func (e *estimate) usable() bool {
	return !e.received.IsZero() && time.Since(e.received) <= clockLimit
}

func (e *estimate) fresh() bool {
	return !e.received.IsZero() && time.Since(e.received) < clockAge && e.error < clockPatience
}

// off is by how much the estimate may be behind the server's clock by now.
func (e *estimate) off() time.Duration { return e.error + 2*time.Since(e.received)/clockDrift }

// reading is a moment of the server's clock that has passed for certain, by at most
// error.
type reading struct {
	at    time.Time
	error time.Duration
}

// known is false when the server has not told its time.
func (r reading) known() bool { return !r.at.IsZero() }

// fence is the moment as a fence: 1024 to the millisecond, as record.lua has it.
func (r reading) fence() uint64 {
	us := uint64(max(r.at.UnixMicro(), 0))
	return us/1000*1024 + us%1000
}

// millis is the moment as records hold it.
func (r reading) millis() int64 { return r.at.UnixMilli() }

// now returns the server's time, after a round trip when the last answer is old. Without
// an answer the reading is not known.
func (c *clock) now(ctx context.Context) reading {
	if c.exact {
		return c.asked(ctx)
	}
	est := c.last()
	switch {
	case !est.usable():
		c.asking.Lock()
		c.refresh(ctx)
		c.asking.Unlock()
		est = c.last()
	case !est.fresh() && c.asking.TryLock():
		c.refresh(ctx)
		c.asking.Unlock()
		est = c.last()
	}
	if !est.usable() {
		return reading{}
	}
	age := time.Since(est.received)
	return reading{est.server.Add(age - age/clockDrift), est.off()}
}

// asked is now without an estimate. What our clock has gone on by says nothing about one
// that stands still: it would be ahead, and what is certain to have passed would not have.
func (c *clock) asked(ctx context.Context) reading {
	c.asking.Lock()
	defer c.asking.Unlock()
	sent := time.Now()
	c.refresh(ctx)
	est := c.last()
	if est.received.Before(sent) {
		return reading{}
	}
	return reading{est.server, est.off() + time.Since(est.received)}
}

func (c *clock) last() estimate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.est
}

// refresh asks, unless somebody did while we waited for our turn, or nobody answered
// just now: then the scripts tell the time.
func (c *clock) refresh(ctx context.Context) {
	if last := c.last(); !c.exact && (last.fresh() || time.Since(c.tried) < clockPause) {
		return
	}
	c.tried = time.Now()
	heard, sent := &hearing{}, c.tried
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.ask(context.WithoutCancel(ctx), heard)
		c.adopt(heard, time.Since(sent) > clockPatience) // also when nobody waits for it any more
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

// adopt makes the best of what was heard the estimate, unless there is a newer one. An
// answer that was long on its way says little: it counts only where less is known.
func (c *clock) adopt(heard *hearing, late bool) {
	heard.mu.Lock()
	best := heard.best
	heard.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case best.server.IsZero(), best.received.Before(c.est.received):
	case late && c.est.usable() && best.error > c.est.off():
	default:
		c.est = best
	}
}

// hearing is one round of asking: the best answer so far.
type hearing struct {
	mu   sync.Mutex
	best estimate
}

// add takes an answer if it is the first, or of a server that is further ahead.
func (h *hearing) add(e estimate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.best.server.IsZero() || e.server.Sub(h.best.server) > e.received.Sub(h.best.received) {
		h.best = e
	}
}

// ask asks the server for its time, or every master of a Cluster. One that hangs must not
// keep the others from being heard.
func (c *clock) ask(ctx context.Context, heard *hearing) {
	one := func(ctx context.Context, node redis.Cmdable) error {
		sent := time.Now()
		at, err := node.Time(ctx).Result()
		if err == nil {
			received := time.Now()
			heard.add(estimate{server: at, received: received, error: received.Sub(sent)})
		}
		return err
	}
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		_ = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return one(ctx, node)
		})
		return
	}
	_ = one(ctx, c.client)
}
