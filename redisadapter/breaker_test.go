package redisadapter_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// moody is a server that can be told to cut every connection, or to hold every call, and
// counts the scripts and commands that reach it.
type moody struct {
	store *redisadapter.Store
	calls atomic.Int64
	reply atomic.Pointer[string] // "" cuts the connection; nil is a healthy answer
	hold  atomic.Pointer[chan struct{}]
	now   atomic.Int64 // of the breaker's clock
}

const breakerAfter = 3

func newMoody(t *testing.T, opts redisadapter.Options) *moody {
	t.Helper()
	m := &moody{}
	fake := redistest.Fake(t, func(args []string) string {
		switch strings.ToUpper(args[0]) {
		case "PING":
			return "+PONG\r\n"
		case "INFO":
			return infoReply(nil)
		case "TIME": // none, so that all is done by scripts
			return "-ERR no\r\n"
		}
		m.calls.Add(1)
		if hold := m.hold.Load(); hold != nil {
			<-*hold
		}
		if reply := m.reply.Load(); reply != nil {
			return *reply
		}
		return redistest.Answer("absent", 0, 0, "")
	})
	fake.PoolSize = 100
	opts.BreakerAfter = breakerAfter
	store, err := redisadapter.New(t.Context(), redistest.Client(t, fake), opts)
	must(t, err)
	m.store = store
	redisadapter.SetBreakerClock(store, func() time.Time { return time.Unix(0, m.now.Load()) })
	m.calls.Store(0)
	return m
}

func (m *moody) say(reply string) { m.reply.Store(&reply) }
func (m *moody) heal()            { m.reply.Store(nil) }

func (m *moody) lookup(ctx context.Context) error {
	return m.store.Lookup(ctx, []driver.ID{newID(1)})[0].Err
}

// trip makes the breaker open.
func (m *moody) trip(t *testing.T) {
	t.Helper()
	m.say("")
	for range breakerAfter {
		err := m.lookup(t.Context())
		require.Error(t, err)
		require.NotErrorIs(t, err, redisadapter.ErrBreakerOpen)
	}
	require.True(t, m.store.Health().BreakerOpen, "the breaker is closed")
	m.calls.Store(0)
}

// TestBreaker: an open breaker sends nothing. Later one of many calls is sent as a probe, and its
// success lets all calls through.
func TestBreaker(t *testing.T) {
	m := newMoody(t, redisadapter.Options{})
	m.trip(t)
	for _, a := range []driver.Answer{
		m.store.Claim(t.Context(), []driver.ClaimRequest{request(1)})[0],
		m.store.Lookup(t.Context(), []driver.ID{newID(1)})[0],
	} {
		assert.ErrorIs(t, a.Err, redisadapter.ErrBreakerOpen, "while it is open: %+v", a)
		assert.Equal(t, "breaker", redisadapter.Classify(a.Err), "while it is open: %+v", a)
		assert.True(t, dedup.CanRetry(a.Err), "while it is open: %+v", a)
		assert.Equal(t, dedup.Unknown, a.Outcome, "while it is open: %+v", a)
		var told interface{ NotSent() bool }
		require.ErrorAs(t, a.Err, &told, "the core is not told that nothing was sent")
		assert.True(t, told.NotSent(), "the core is not told that nothing was sent: %v", a.Err)
	}
	err := m.store.Forget(t.Context(), []driver.ID{newID(1)}, time.Hour)[0]
	assert.ErrorIs(t, err, redisadapter.ErrBreakerOpen, "Forget")
	n := m.calls.Load()
	assert.Zero(t, n, "%d calls were sent while it was open", n)
	m.heal()
	m.oneProbe(t)
	err = m.lookup(t.Context())
	assert.NoError(t, err, "after the probe")
	assert.False(t, m.store.Health().BreakerOpen, "after the probe: %v", err)
}

// oneProbe sends 32 calls when an open breaker may send a probe.
func (m *moody) oneProbe(t *testing.T) {
	t.Helper()
	hold := make(chan struct{})
	m.hold.Store(&hold)
	m.now.Add(int64(time.Minute))
	refused := make(chan error, 32)
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			if err := m.lookup(t.Context()); err != nil {
				refused <- err
			}
		})
	}
	for range 31 { // the last one is held by the server
		err := <-refused
		assert.ErrorIs(t, err, redisadapter.ErrBreakerOpen, "beside the probe")
	}
	m.hold.Store(nil)
	close(hold)
	callers.Wait()
	n := m.calls.Load()
	assert.EqualValues(t, 1, n, "%d calls were sent, want one probe", n)
}

// TestBreakerStaysOpenLonger: each failed probe opens the breaker again, for a longer time.
func TestBreakerStaysOpenLonger(t *testing.T) {
	m := newMoody(t, redisadapter.Options{})
	m.trip(t)
	var last time.Duration
	for try := range 4 {
		waited := time.Duration(0)
		for errors.Is(m.lookup(t.Context()), redisadapter.ErrBreakerOpen) {
			m.now.Add(int64(time.Millisecond))
			waited += time.Millisecond
		}
		n := m.calls.Swap(0)
		require.EqualValues(t, 1, n, "try %d: %d calls", try, n)
		base := min(250*time.Millisecond<<try, 500*time.Millisecond)
		assert.GreaterOrEqual(t, waited, base/2, "try %d came after %v", try, waited)
		assert.LessOrEqual(t, waited, base+2*time.Millisecond, "try %d came after %v", try, waited)
		assert.GreaterOrEqual(t, waited, last/2, "try %d came after %v", try, waited)
		last = waited
	}
}

// TestBreakerLetsEndsThrough: a completion is sent anyway, because its effect has happened.
func TestBreakerLetsEndsThrough(t *testing.T) {
	m := newMoody(t, redisadapter.Options{})
	m.trip(t)
	err := m.store.Finish(t.Context(), []driver.Finish{change(1, driver.StateSucceeded)})[0].Err
	assert.NotErrorIs(t, err, redisadapter.ErrBreakerOpen, "a completion")
	assert.Error(t, err, "a completion")
	err = m.store.Renew(t.Context(), []driver.Renewal{renewal(1)})[0].Err
	assert.NotErrorIs(t, err, redisadapter.ErrBreakerOpen, "a renewal")
	assert.Error(t, err, "a renewal")
	n := m.calls.Load()
	assert.EqualValues(t, 2, n, "%d calls were sent", n)
	m.say(redistest.Answer("held", 1000, 0, redisadapter.Golden(t, "succeeded_bare")))
	m.store.Finish(t.Context(), []driver.Finish{change(1, driver.StateSucceeded)})
	assert.False(t, m.store.Health().BreakerOpen,
		"a completion was answered, and the breaker is still open")
}

// TestBreakerCountsTheServerAlone: the breaker opens only if the server does not answer.
func TestBreakerCountsTheServerAlone(t *testing.T) {
	for name, once := range map[string]func(t *testing.T, m *moody){
		"refusals": func(t *testing.T, m *moody) {
			m.say("-LOADING Redis is loading the dataset in memory\r\n")
			_ = m.lookup(t.Context())
		},
		"cancelled callers": func(t *testing.T, m *moody) {
			hold := make(chan struct{})
			m.hold.Store(&hold)
			ctx, cancel := context.WithCancel(t.Context())
			before := m.calls.Load()
			done := make(chan error, 1)
			go func() { done <- m.lookup(ctx) }()
			eventually(t, "the call arrives", func() bool { return m.calls.Load() > before })
			cancel()
			<-done
			m.hold.Store(nil)
			close(hold)
		},
		"callers without time": func(t *testing.T, m *moody) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
			defer cancel()
			_ = m.lookup(ctx)
		},
		"bad input": func(t *testing.T, m *moody) {
			bad := request(1)
			bad.Lease = -1
			m.store.Claim(t.Context(), []driver.ClaimRequest{bad})
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMoody(t, redisadapter.Options{})
			for range 3 * breakerAfter {
				once(t, m)
			}
			assert.False(t, m.store.Health().BreakerOpen, "the breaker is open")
		})
	}
}

// TestMaxInFlight: no more pipelines are sent than allowed. Those whose callers have gone count,
// too. Claims never take the room of completions.
func TestMaxInFlight(t *testing.T) {
	const bound = 8
	m := newMoody(t, redisadapter.Options{MaxInFlight: bound})
	hold := make(chan struct{})
	m.hold.Store(&hold)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 40 {
		callers.Go(func() { _ = m.lookup(ctx) })
	}
	eventually(t, "three quarters are under way", func() bool {
		return m.calls.Load() == bound*3/4
	})
	for range 20 {
		callers.Go(func() { m.store.Renew(ctx, []driver.Renewal{renewal(1)}) })
	}
	eventually(t, "all are under way", func() bool { return m.calls.Load() == bound })
	cancel()
	callers.Wait()
	h := m.store.Health()
	assert.Equal(t, bound, h.InFlight,
		"%d calls were sent, %d are under way", m.calls.Load(), h.InFlight)
	assert.EqualValues(t, bound, m.calls.Load(),
		"%d calls were sent, %d are under way", m.calls.Load(), h.InFlight)
	m.hold.Store(nil)
	close(hold)
	eventually(t, "they end", func() bool { return m.store.Health().InFlight == 0 })
	err := m.lookup(t.Context())
	assert.NoError(t, err)
}

// eventually polls until done.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	// for a busy machine; only a test that fails waits for so long
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("never: %s", what)
		}
	}
}

// TestNoStormAfterRestart: 32 callers try again without a pause. When the server is back, they dial
// only a bounded number of times.
func TestNoStormAfterRestart(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedis)
	client := redistest.Client(t, &redis.Options{Addr: server.Addr, DialerRetries: 1})
	store := open(t, redistest.Backend{Client: client, Prefix: "ow"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var answered, refused atomic.Int64
	var callers sync.WaitGroup
	for n := range 32 {
		callers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				switch err := store.Claim(ctx,
					[]driver.ClaimRequest{request(n*1000 + i%1000)})[0].Err; {
				case err == nil:
					answered.Add(1)
				case errors.Is(err, redisadapter.ErrBreakerOpen):
					refused.Add(1)
				}
			}
		})
	}
	eventually(t, "claims are answered", func() bool { return answered.Load() > 100 })
	server.Kill(1)
	eventually(t, "calls fail at once", func() bool { return refused.Load() > 1000 })
	server.Start(1)
	answered.Store(0)
	eventually(t, "claims are answered again", func() bool { return answered.Load() > 1000 })
	cancel()
	callers.Wait()
	dials, err := strconv.Atoi(infoOf(t, client, "stats", "total_connections_received"))
	must(t, err)
	t.Logf("%d connections since the restart, pool of %d", dials, client.Options().PoolSize)
	assert.LessOrEqual(t, dials, 3*client.Options().PoolSize,
		"%d connections since the restart, pool of %d", dials, client.Options().PoolSize)
}
