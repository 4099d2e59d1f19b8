package engine

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter/internal/guard"
	"github.com/onceward/onceward/redisadapter/internal/line"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// runLayout is a layout of which only Run is called.
type runLayout struct {
	Layout

	run func(x *Exchange)
}

func (l *runLayout) Run(_ context.Context, x *Exchange) { l.run(x) }

// TestPanicIsNoAnswer: an exchange that panics has learned nothing about the server. Its items have
// no error yet. If they counted as answers, a probe that panics would close the breaker while the
// server is away. If the exchange kept its permission, no other probe could start.
func TestPanicIsNoAnswer(t *testing.T) {
	ctx := t.Context()
	layout := &runLayout{run: func(x *Exchange) {
		x.Claimed[0].Err = &net.OpError{Op: "dial", Err: net.UnknownNetworkError("gone")}
	}}
	e := &Engine{Layout: layout, Line: line.New(nil, 1, 1), Clock: &wire.Clock{},
		Guard: &guard.Amnesia{}}
	e.Clock.Est.Received = time.Now() // so that nobody asks the server for its time
	reqs := make([]driver.ClaimRequest, 1)

	_, claimed := e.FinishClaim(ctx, nil, reqs)
	require.Error(t, claimed[0].Err)
	require.True(t, e.Line.BreakerOpen(), "after an exchange that did not reach the server")

	e.Line.SetClock(func() time.Time { return time.Now().Add(time.Minute) })
	layout.run = func(*Exchange) { panic("a hook") }
	assert.PanicsWithValue(t, "a hook", func() { e.FinishClaim(ctx, nil, reqs) })
	assert.True(t, e.Line.BreakerOpen(), "after a probe that panics")

	layout.run = func(*Exchange) {}
	_, claimed = e.FinishClaim(ctx, nil, reqs)
	require.NoError(t, claimed[0].Err, "the next probe")
	assert.False(t, e.Line.BreakerOpen(), "after a probe that was answered")
}
