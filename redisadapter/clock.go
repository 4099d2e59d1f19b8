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
	// exact asks before every use: for an embedded server, whose clock a test moves.
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
	est := c.last()
	switch age := time.Since(est.received); {
	case est.received.IsZero() || age > clockLimit || c.exact:
		c.asking.Lock()
		c.refresh(ctx)
		c.asking.Unlock()
		est = c.last()
	case age > clockAge && c.asking.TryLock():
		c.refresh(ctx)
		c.asking.Unlock()
		est = c.last()
	}
	age := time.Since(est.received)
	if est.received.IsZero() || age > clockLimit {
		return reading{}
	}
	return reading{est.server.Add(age - age/clockDrift), est.error + 2*age/clockDrift}
}

func (c *clock) last() estimate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.est
}

// refresh asks, unless somebody did while we waited for our turn, or nobody answered
// just now: then the scripts tell the time.
func (c *clock) refresh(ctx context.Context) {
	if !c.exact && (time.Since(c.last().received) < clockAge || time.Since(c.tried) < clockPause) {
		return
	}
	c.tried = time.Now()
	answers := make(chan estimate, 1)
	go func() { answers <- c.ask(context.WithoutCancel(ctx)) }()
	patience := time.NewTimer(clockPatience)
	defer patience.Stop()
	select {
	case est := <-answers:
		if est.server.IsZero() {
			return
		}
		c.mu.Lock()
		c.est = est
		c.mu.Unlock()
	case <-patience.C:
	case <-ctx.Done():
	}
}

// ask asks the server for its time. Of the masters of a Cluster it takes the latest that
// it gets: one that is down must not keep the others from working.
func (c *clock) ask(ctx context.Context) estimate {
	var mu sync.Mutex
	var best estimate
	one := func(ctx context.Context, node redis.Cmdable) error {
		sent := time.Now()
		at, err := node.Time(ctx).Result()
		if err != nil {
			return err
		}
		e := estimate{server: at, received: time.Now()}
		e.error = e.received.Sub(sent)
		mu.Lock()
		defer mu.Unlock()
		if best.server.IsZero() || e.server.Sub(best.server) > e.received.Sub(best.received) {
			best = e
		}
		return nil
	}
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		_ = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return one(ctx, node) })
	} else {
		_ = one(ctx, c.client)
	}
	mu.Lock()
	defer mu.Unlock()
	return best
}
