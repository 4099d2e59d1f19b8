package line

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// A pipeline whose caller may leave runs in a goroutine of its own, because go-redis waits for a
// reply even after the caller's context has ended. Waking that goroutine, and then the caller,
// costs more CPU than the round trip. With a client that at least keeps the deadline of a context,
// the goroutine is not always needed:
//
//   - When a context ends only by its deadline, the client keeps that deadline.
//   - While the server is near, which means that it has recently answered at once, small pipelines
//     have a deadline of their own, fastPatience, for which their caller waits at most. A pipeline
//     that is not answered by then is sent again from a goroutine, as if its reply had been lost,
//     and the server counts as far away for a while.
const (
	// fastPatience is how much later than its context's end a call may return.
	fastPatience = 50 * time.Millisecond
	// fastRTT is how long the round trips of a near server take. Further away there is
	// little to gain: the network takes longer than two goroutines.
	fastRTT = 2 * time.Millisecond
	// fastCommands bounds a small pipeline, whose commands take the server no time to speak of.
	fastCommands = 8
)

// fastPath says which pipelines may run on their caller's goroutine. Its zero value says none.
type fastPath struct {
	on  bool         // the client keeps deadlines
	rtt atomic.Int64 // the estimated round trip in nanoseconds; 0 for not known
}

// may reports whether small pipelines can run on their caller's goroutine.
func (n *fastPath) may() bool {
	rtt := n.rtt.Load()
	return n.on && rtt > 0 && rtt < int64(fastRTT)
}

// note takes how long a small pipeline was under way. Most long round trips are long because they
// have waited, so a single one says little, unless it was not answered.
func (n *fastPath) note(took time.Duration) {
	old := n.rtt.Load()
	if old == 0 {
		n.rtt.Store(int64(max(took, 1)))
		return
	}
	n.rtt.Store(max(old+(int64(took)-old)/8, 1))
}

// far makes the server count as far away for the next dozens of pipelines.
func (n *fastPath) far() { n.rtt.Store(int64(time.Second)) }

// passed reports whether the deadline of ctx has passed: the timer of ctx may fire later than that
// of a connection.
func passed(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && !time.Now().Before(d)
}

// timed reports whether ctx ends only by its deadline.
func (n *fastPath) timed(ctx context.Context) bool {
	if !n.on {
		return false
	}
	c, ok := ctx.(interface{ Caller() context.Context })
	return ok && c.Caller().Done() == nil
}

// inTime reports whether no reply is missing because it took too long.
func inTime(replies []redisscript.Reply, cmds []redis.Cmder) bool {
	for i := range replies {
		if late(replies[i].Err) {
			return false
		}
	}
	for _, cmd := range cmds {
		if late(cmd.Err()) {
			return false
		}
	}
	return true
}

// late recognizes the error of a reply that did not come in time. It is false when the pool has no
// free connection, because the call has already waited for one.
func late(err error) bool {
	if err == nil || err == redis.Nil || errors.Is(err, redis.ErrPoolTimeout) { //nolint:errorlint // go-redis returns Nil as it is
		return false
	}
	class := wire.Classify(err)
	return class == wire.ClassContext || class == wire.ClassTimeout
}
