package redisadapter_test

import (
	"context"
	"runtime/debug"
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
	"github.com/onceward/onceward/redisadapter"
)

// nearby is a server that answers every claim at once, unless it holds them. It counts the claims
// that reach it.
type nearby struct {
	store  *redisadapter.Store
	client *redis.Client
	claims atomic.Int64
	hold   atomic.Pointer[chan struct{}]
}

func newNearby(t *testing.T, keepsDeadlines bool) *nearby {
	t.Helper()
	n := &nearby{}
	options := redistest.Fake(t, func(args []string) string {
		switch strings.ToUpper(args[0]) {
		case "PING":
			return "+PONG\r\n"
		case "INFO":
			return infoReply(nil)
		case "TIME":
			return "-ERR no\r\n"
		case "EVALSHA":
			if len(args) < 7 { // the Lookup by which New tries the server
				return redistest.Answer("absent", 0, 0, "")
			}
			n.claims.Add(1)
			if hold := n.hold.Load(); hold != nil {
				<-*hold
			}
		}
		return redistest.Answer("in_flight", 1000, 0, "")
	})
	options.ContextTimeoutEnabled, options.ReadTimeout = keepsDeadlines, time.Hour
	n.client = redistest.Client(t, options)
	store, err := redisadapter.New(t.Context(), n.client, redisadapter.Options{})
	must(t, err)
	n.store = store
	return n
}

func (n *nearby) claim(ctx context.Context) driver.Answer {
	return n.store.Claim(ctx, []driver.ClaimRequest{request(1)})[0]
}

// approach makes calls until the store knows that the server is near. On a machine that is too slow
// for that, it makes the store believe it.
func (n *nearby) approach(t *testing.T) {
	t.Helper()
	for range 1000 {
		if n.claim(t.Context()); redisadapter.Near(n.store) {
			return
		}
	}
	t.Log("too slow to be taken for near")
	redisadapter.ComeNear(n.store)
}

// stopped holds all claims until the returned function is called.
func (n *nearby) stopped() (goOn func()) {
	hold := make(chan struct{})
	n.hold.Store(&hold)
	return sync.OnceFunc(func() {
		n.hold.Store(nil)
		close(hold)
	})
}

// who notes whether calls run on the goroutine of the test that made them.
type who struct{ callers, others atomic.Int64 }

func (w *who) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *who) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (w *who) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch {
		case cmd.Name() == "time": // the clock's
		case strings.Contains(string(debug.Stack()), "redisadapter.(*Store).Claim"):
			w.callers.Add(1)
		default:
			w.others.Add(1)
		}
		return next(ctx, cmd)
	}
}

func TestNearServerIsAskedOnTheCallersGoroutine(t *testing.T) {
	n := newNearby(t, true)
	var w who
	n.client.AddHook(&w)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n.claim(ctx)
	assert.Zero(t, w.callers.Load(), "calls on the caller's goroutine, of an unknown server")
	assert.EqualValues(t, 1, w.others.Load(), "a server that is not known yet: calls on others")
	n.approach(t)
	w.callers.Store(0)
	w.others.Store(0)
	n.claim(ctx)
	assert.EqualValues(t, 1, w.callers.Load(), "near: calls on the caller's goroutine")
	assert.Zero(t, w.others.Load(), "near: calls on others")
}

// A caller that leaves gets its answer soon, and not only when the server answers. Its claim is not
// sent again without end.
func TestCancelledCallerLeavesANearServerThatHangs(t *testing.T) {
	n := newNearby(t, true)
	n.approach(t)
	goOn := n.stopped()
	defer goOn()
	before := n.claims.Load()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := context.DeadlineExceeded // some cause
	answer := make(chan driver.Answer, 1)
	go func() { answer <- n.claim(ctx) }()
	eventually(t, "the claim arrives", func() bool { return n.claims.Load() > before })
	cancel(gone)
	ans := <-answer // it must not hang
	assert.Equal(t, "context", redisadapter.Classify(ans.Err), "answered %v", ans.Err)
	sent := n.claims.Load() - before
	assert.LessOrEqual(t, sent, int64(2), "sent %d times", sent)
	eventually(t, "nothing but what was left behind is under way", func() bool {
		return n.store.Health().InFlight <= 1
	})
}

// A near server does not answer a call at once. The call is sent again with the usual patience, and
// the server counts as far away for dozens of calls.
func TestNearServerThatHesitates(t *testing.T) {
	n := newNearby(t, true)
	n.approach(t)
	goOn := n.stopped()
	defer goOn()
	before := n.claims.Load()
	answer := make(chan driver.Answer, 1)
	go func() { answer <- n.claim(t.Context()) }()
	eventually(t, "the claim is sent again", func() bool { return n.claims.Load() == before+2 })
	goOn()
	ans := <-answer
	assert.NoError(t, ans.Err)
	assert.Equal(t, dedup.InFlight, ans.Outcome, "answered %+v", ans)
	for range 20 {
		n.claim(t.Context())
		require.False(t, redisadapter.Near(n.store), "near again after a few calls")
	}
	n.approach(t)
}

// A deadline is kept, even if it is shorter than the patience with a near server.
func TestDeadlineOfACallToANearServer(t *testing.T) {
	n := newNearby(t, true)
	n.approach(t)
	goOn := n.stopped()
	defer goOn()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	ans := n.claim(ctx)
	assert.Equal(t, "context", redisadapter.Classify(ans.Err), "answered %v", ans.Err)
	assert.True(t, redisadapter.Near(n.store), "the caller's haste made the server far")
}

// A client that reads until its ReadTimeout, whatever the deadline, would hold its caller up.
func TestClientThatKeepsNoDeadlinesIsNeverNear(t *testing.T) {
	n := newNearby(t, false)
	for range 100 {
		n.claim(t.Context())
		require.False(t, redisadapter.Near(n.store), "near")
	}
}

// timed is the context of a call for several callers. Caller returns the one that may end it.
type timed struct {
	context.Context
	caller context.Context
}

func (c timed) Caller() context.Context { return c.caller }

func TestContextThatEndsByItsDeadlineIsLeftToTheClient(t *testing.T) {
	cancellable, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, row := range map[string]struct {
		keeps          bool
		caller         context.Context
		callers, other int64
	}{
		"nobody may leave":         {true, context.Background(), 1, 0},
		"somebody may leave":       {true, t.Context(), 0, 1},
		"the client has no regard": {false, context.Background(), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNearby(t, row.keeps)
			var w who
			n.client.AddHook(&w)
			n.claim(timed{cancellable, row.caller})
			assert.Equal(t, row.callers, w.callers.Load(), "calls on the caller's goroutine")
			assert.Equal(t, row.other, w.others.Load(), "calls on others")
		})
	}
	n := newNearby(t, true)
	goOn := n.stopped()
	defer goOn()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	// it must not hang
	ans := n.claim(timed{ctx, context.Background()})
	assert.Error(t, ans.Err, "a server that hangs: %+v", ans)
	assert.True(t, dedup.CanRetry(ans.Err), "a server that hangs: %+v", ans)
}
