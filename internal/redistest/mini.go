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
	return m, Patient(t, m.Addr())
}

// patience is the timeout of a client whose server nobody kills or freezes. On a busy machine a
// batch may take longer than go-redis's default of three seconds, above all with miniredis, which
// interprets Lua in Go. The client would then send the batch again and get the answers of a
// repeated command.
const patience = time.Minute

// Frozen is a miniredis whose clock moves only with Advance.
type Frozen struct {
	*miniredis.Miniredis
	now time.Time
}

// Freeze is like Mini, with a clock that only the test moves.
func Freeze(t testing.TB) (*Frozen, *redis.Client) {
	t.Helper()
	m, client := Mini(t)
	f := &Frozen{Miniredis: m, now: time.Now()}
	m.SetTime(f.now)
	return f, client
}

// Advance moves the clock, and keys that expire by then are gone when it returns. Two goroutines
// must not call it at once.
func (f *Frozen) Advance(d time.Duration) {
	f.now = f.now.Add(d)
	f.SetTime(f.now)
}

// Bubble is like Mini for a testing/synctest bubble: it uses pipes instead of sockets, and the
// bubble's clock.
//
// The literal address matters. go-redis resolves the host name of its options when it connects.
// With a name, net's resolver would keep a channel of the first bubble, and the next test's
// bubble would panic on it.
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

// Patient returns a client of a server that nobody kills or freezes. It is closed when t ends.
func Patient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	return Client(t, &redis.Options{Addr: addr, ReadTimeout: patience, WriteTimeout: patience})
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
