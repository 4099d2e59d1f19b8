package redistest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Mini starts a miniredis on loopback whose keys expire by the wall clock, and a client
// for it. Both are closed when t ends.
func Mini(t testing.TB) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	return m, Client(t, &redis.Options{Addr: m.Addr(), ReadTimeout: patience,
		WriteTimeout: patience})
}

// patience is a client's with a server that nobody kills or freezes. On a busy machine a batch
// may take longer than the three seconds of go-redis, most of all with a miniredis, whose Lua is
// interpreted in Go; and what is then sent again is answered as what was sent before.
const patience = time.Minute

// Frozen is a miniredis whose clock stands still but for Advance.
type Frozen struct {
	*miniredis.Miniredis
	now time.Time
}

// Freeze is like Mini, with a clock that the test moves.
func Freeze(t testing.TB) (*Frozen, *redis.Client) {
	t.Helper()
	m, client := Mini(t)
	f := &Frozen{Miniredis: m, now: time.Now()}
	m.SetTime(f.now)
	return f, client
}

// Advance moves the clock; what expires by then has expired. It must not be called by
// two goroutines at once.
func (f *Frozen) Advance(d time.Duration) {
	f.now = f.now.Add(d)
	f.SetTime(f.now)
}

// Bubble is like Mini for a testing/synctest bubble: it uses pipes in place of sockets,
// and the bubble's clock.
//
// The literal address matters. go-redis resolves the host name of its options when it
// connects, and net's resolver would then hold a channel of the first bubble: the next
// test's bubble dies of it.
func Bubble(t testing.TB) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	client := Client(t, &redis.Options{
		Addr:   "127.0.0.1:0",
		Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
	})
	return m, client
}

// Client returns a client that is closed when t ends.
func Client(t testing.TB, opts *redis.Options) *redis.Client {
	t.Helper()
	client := newClient(opts, userRules(t))
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("closing the client: %v", err)
		}
	})
	return client
}
