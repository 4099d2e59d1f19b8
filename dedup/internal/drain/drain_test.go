package drain

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Close waits for calls and for batches, and refuses new ones.
func TestLifeEndsWithTheLast(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	l := new(Group)
	l.Init()
	require.True(t, l.Enter())
	l.Hold()
	l.Begin()
	left, drained := l.Close(over)
	require.Equal(t, 2, left, "with two calls and a batch")
	require.False(t, drained, "with two calls and a batch")
	require.False(t, l.Enter(), "enter after close")
	l.Leave()
	l.Leave()
	left, drained = l.Close(over)
	require.Equal(t, 0, left, "with a batch")
	require.False(t, drained, "with a batch")
	require.Equal(t, 1, l.Behind())
	l.End()
	_, drained = l.Close(over)
	require.True(t, drained, "not drained when the last has ended")
	l.Hold() // completes a claim that was held all along
	l.Leave()
}
