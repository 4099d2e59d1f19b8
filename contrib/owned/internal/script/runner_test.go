package script_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/internal/redistest"
)

// TestMissingScriptInAPipeline: if the server does not know a script, no call of the pipeline is
// lost, and none is executed twice.
func TestMissingScriptInAPipeline(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		require.NoError(t, p.client.ScriptFlush(t.Context()).Err())
		seq := p.head().Seq
		marks := script.NewBatch(p.keys, p.self, p.turn(1, []int64{2}, nil))
		ask := script.NewAsk(p.keys, &script.Ask{Epoch: p.self.Epoch, IDs: []int64{2},
			Fresh: []string{p.fresh(1)}})
		for range 2 {
			for i, r := range p.runner.Run(t.Context(), []script.Call{marks, ask, marks}) {
				require.NoError(t, r.Err)
				assert.Equal(t, []string{script.AnswerDone, script.AnswerFound,
					script.AnswerDone}[i], r.Answer)
			}
		}
		assert.Equal(t, seq+4, p.head().Seq, "each call was executed once")
	})
}

// TestRunEndsWithItsContext prevents a caller from waiting for the client's ReadTimeout when its
// own context has ended: go-redis looks at the context only between tries.
func TestRunEndsWithItsContext(t *testing.T) {
	asked := make(chan struct{}, 1)
	opts := redistest.Fake(t, func([]string) string {
		asked <- struct{}{}
		<-t.Context().Done() // ends before the cleanup that closes the fake
		return ""
	})
	runner := script.NewRunner(redistest.Client(t, opts))
	gone := errors.New("the caller has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(gone)
	}()
	calls := []script.Call{script.NewRemap(script.Keys{}, script.Remap{}),
		script.NewRemap(script.Keys{}, script.Remap{})}
	for range 2 { // the second time, it has ended before
		replies := runner.Run(ctx, calls)
		require.Len(t, replies, 2)
		for _, r := range replies {
			require.ErrorIs(t, r.Err, context.Canceled)
			require.ErrorIs(t, r.Err, gone)
		}
	}
	_, err := runner.Swap(ctx, "key", "", "value")
	require.ErrorIs(t, err, gone)
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	client := redistest.Client(t, &redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
	_, err = script.NewRunner(client).Swap(t.Context(), "key", "", "value")
	var dial *net.OpError
	assert.ErrorAs(t, err, &dial)
}

// TestExecSendsNoCommandToTwoNodes prevents two nodes from writing the reply of one command: when a
// batch fails, go-redis puts a redirected command aside once more.
func TestExecSendsNoCommandToTwoNodes(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"},
		MaxRedirects: -1, DialTimeout: time.Millisecond})
	t.Cleanup(func() { _ = client.Close() })
	pipe := client.Pipeline()
	pipe.Get(t.Context(), "a")
	pipe.Get(t.Context(), "b")
	cmds, err := script.Exec(t.Context(), client, pipe)
	require.Error(t, err)
	require.Len(t, cmds, 2)
	for _, cmd := range cmds {
		assert.True(t, cmd.NoRetry(), "%s", cmd)
	}
}
