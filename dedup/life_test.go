package dedup

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Close waits for calls and for batches, one as much as the other, and refuses what comes.
func TestLifeEndsWithTheLast(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	l := new(life)
	l.init()
	require.NoError(t, l.enter())
	l.hold()
	l.begin()
	left, drained := l.close(over)
	require.Equal(t, 2, left, "with two calls and a batch")
	require.False(t, drained, "with two calls and a batch")
	require.ErrorIs(t, l.enter(), ErrClosed, "enter after close")
	l.leave()
	l.leave()
	left, drained = l.close(over)
	require.Equal(t, 0, left, "with a batch")
	require.False(t, drained, "with a batch")
	require.Equal(t, 1, l.behind())
	l.end()
	_, drained = l.close(over)
	require.True(t, drained, "not drained when the last has ended")
	l.hold() // completing a claim that was held all along
	l.leave()
}
