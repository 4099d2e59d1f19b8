package kafkaconfluent

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

var errBroken = errors.New("broken")

// Consume is New and Run.
func TestConsume(t *testing.T) {
	r := newRig(t, 1)
	r.produce(0, 0, 5)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	cfg := r.config(nil)
	brokers := r.cluster.ListenAddrs()
	go func() { done <- Consume(ctx, brokers, group, []string{orders}, nil, cfg) }()
	r.committed()
	stop()
	require.NoError(t, <-done)
	r.once(5)
	wantInput(t, Consume(t.Context(), brokers, "", []string{orders}, nil, cfg), "group")
}
