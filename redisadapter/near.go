package redisadapter

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// A pipeline whose caller may leave runs in a goroutine of its own, for go-redis waits for
// a reply whatever becomes of the caller's context. Waking that goroutine, and then the
// caller, costs more CPU than the round trip. With a client that at least keeps the deadline
// of a context, it is not always needed:
//
//   - A context that ends by its deadline only is left to the client.
//   - While the server is near, which means that it has answered at once of late, small
//     pipelines have a deadline of their own: as long as anybody may be kept from leaving.
//     What is not answered by then is sent again the other way, as if its reply had been
//     lost, and the server counts as far away for a while.
const (
	// nearPatience is how much later than its context's end a call may return.
	nearPatience = 50 * time.Millisecond
	// nearTrip is how long the round trips of a near server take. Further away there is
	// little to gain: the network takes longer than two goroutines.
	nearTrip = 2 * time.Millisecond
	// nearCommands bounds a small pipeline: what it takes the server is no part of the trip.
	nearCommands = 8
)

// near says which pipelines may run on their caller's goroutine. Its zero value says none.
type near struct {
	on   bool         // the client keeps deadlines
	trip atomic.Int64 // the estimated round trip in nanoseconds; 0 for not known
}

// may reports whether small pipelines can run on their caller's goroutine.
func (n *near) may() bool {
	trip := n.trip.Load()
	return n.on && trip > 0 && trip < int64(nearTrip)
}

// note takes how long a small pipeline was under way. What makes a trip long is mostly
// waiting, so that single ones say little, except for one that was not answered.
func (n *near) note(took time.Duration) {
	old := n.trip.Load()
	if old == 0 {
		n.trip.Store(int64(max(took, 1)))
		return
	}
	n.trip.Store(max(old+(int64(took)-old)/8, 1))
}

// far makes the server count as far away for the next dozens of pipelines.
func (n *near) far() { n.trip.Store(int64(time.Second)) }

// send makes a small pipeline on its caller's goroutine. It reports false when nothing came
// of it: then it can be sent again.
func (n *near) send(ctx context.Context, r *redisscript.Runner, calls []redisscript.Call,
	after []redis.Cmder, last func() []redis.Cmder) ([]redisscript.Reply, bool) {
	start := time.Now()
	replies := r.Send(redisscript.Brief(ctx, nearPatience), calls, after, last)
	switch {
	case inTime(replies, after):
		n.note(time.Since(start))
		return replies, true
	case !passed(ctx) && ctx.Err() == nil:
		n.far()
	}
	return nil, false
}

// passed reports whether the deadline of ctx has passed: its own timer may be later than
// that of a connection.
func passed(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && !time.Now().Before(d)
}

// timed reports whether ctx ends by its deadline only.
func (n *near) timed(ctx context.Context) bool {
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

// late recognises the error of a reply that did not come in time. A pool without a free
// connection has been waited for already.
func late(err error) bool {
	if err == nil || err == redis.Nil || errors.Is(err, redis.ErrPoolTimeout) { //nolint:errorlint // go-redis returns Nil as it is
		return false
	}
	class := wire.Classify(err)
	return class == wire.ClassContext || class == wire.ClassTimeout
}
