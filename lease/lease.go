package lease

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/onceward/onceward/internal/redisscript"
)

// Lease is a lease that was acquired. Its methods are safe for concurrent use.
type Lease struct {
	client   *Client
	key      string
	redisKey string
	token    [16]byte
	ttl      time.Duration
	fence    uint64

	mu    sync.Mutex
	until time.Time // when it stops being ours, on our monotonic clock
	lost  bool      // the server has said that it is not ours, or it was released
}

// Key returns the key as it was given to Acquire.
func (l *Lease) Key() string { return l.key }

// Fence returns the fencing number: it is larger than that of every earlier lease of this key, even
// of one that expired long ago. See the package comment for its use.
func (l *Lease) Fence() uint64 { return l.fence }

// Remaining returns how long the lease can still be relied on; zero or negative when it
// cannot. It costs no round trip: it counts on this process's monotonic clock from before
// the request that gained the lease, less 1 % for the drift of two clocks and 2 ms for
// timers.
func (l *Lease) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return 0
	}
	return time.Until(l.until)
}

// validUntil returns the end of a lease that was asked for at sent. A reply says nothing about how
// long it was under way: a server that was frozen, and replaced meanwhile, still answers what was
// waiting in its socket.
func (l *Lease) validUntil(sent time.Time) time.Time {
	return sent.Add(l.ttl - l.ttl/100 - 2*time.Millisecond)
}

// Renew makes the lease last for its ttl from now. It costs one round trip. A lease that
// has lapsed is renewed if nobody else has held it since.
//
// [ErrLost] means that it is gone for good: it was released, or somebody else holds or has
// held it, or Redis has forgotten it. Any other error leaves open whether it was renewed;
// it then ends when Remaining says so.
func (l *Lease) Renew(ctx context.Context) error {
	if ctx == nil {
		return &InputError{"ctx", "is nil"}
	}
	sent := time.Now()
	reply := l.client.run(ctx, redisscript.NewDeclare(l.redisKey, &redisscript.RenewArgs{
		Token: l.token, Fence: l.fence, Lease: l.ttl, Hold: l.client.opts.Hold,
	}))
	if reply.Err != nil {
		return fmt.Errorf("lease: renew: %w", reply.Err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if reply.Answer != "held" || l.lost {
		l.lost = true
		return ErrLost
	}
	if until := l.validUntil(sent); until.After(l.until) {
		l.until = until
	}
	if time.Until(l.until) <= 0 { // it says nothing about now, see validUntil
		return fmt.Errorf("lease: renew: answered after the lease of %v had ended", l.ttl)
	}
	return nil
}

// Release gives the lease up, so that it can be acquired at once. It costs one round trip,
// and never touches a lease of somebody else. Releasing a lease again is not an error.
//
// [ErrLost] means that it was no longer ours; nothing was changed. A request that was not
// answered is sent again a few times, until ctx or the lease is over. After any other
// error the lease lapses by itself.
func (l *Lease) Release(ctx context.Context) error {
	if ctx == nil {
		return &InputError{"ctx", "is nil"}
	}
	reply, err := l.ask(ctx, redisscript.NewFinish(l.redisKey, &redisscript.FinishArgs{
		Token: l.token, Fence: l.fence, State: redisscript.Released, Keep: l.client.opts.Hold,
	}))
	if err != nil {
		return fmt.Errorf("lease: release: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = true
	if reply.Answer != "held" && reply.Answer != "again" {
		return ErrLost
	}
	return nil
}
