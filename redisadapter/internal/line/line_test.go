package line

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPanicIsNoAnswer: a call that panics has not heard from the server. If it counted as an
// answer, a probe that panics would close the breaker while the server is away.
func TestPanicIsNoAnswer(t *testing.T) {
	l := New(nil, 1, 1)
	err := error(&net.OpError{Op: "dial", Err: net.UnknownNetworkError("gone")})
	errs := func(yield func(error) bool) { yield(err) }
	require.NoError(t, l.Call(Begins, func() {}, errs))
	require.True(t, l.BreakerOpen(), "after a call that did not reach the server")

	l.SetClock(func() time.Time { return time.Now().Add(time.Minute) })
	err = nil
	assert.Panics(t, func() { _ = l.Call(Begins, func() { panic("a hook") }, errs) })
	assert.True(t, l.BreakerOpen(), "after a probe that panics")

	require.NoError(t, l.Call(Begins, func() {}, errs), "the next probe")
	assert.False(t, l.BreakerOpen(), "after a probe that was answered")
}
