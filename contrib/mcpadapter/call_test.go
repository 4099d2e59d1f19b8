package mcpadapter_test

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/mcpadapter"
	"github.com/onceward/onceward/dedup"
)

// Twenty calls with one key are under way at a time: one runs, and all get its result. One with
// other arguments is refused, and two without a key run.
func TestConcurrentCallsGetOneResult(t *testing.T) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			var s *service
			s = newService(t, settings{handle: func(_ context.Context, _ *mcp.CallToolRequest,
				_ int64) (*mcp.CallToolResult, error) {
				select {
				case <-s.twenty:
					return nil, nil
				case <-time.After(20 * time.Second):
					return nil, errors.New("not all calls have come")
				}
			}})
			client := connect(s, t)
			answers := make([]string, 20)
			var all sync.WaitGroup
			for i := range answers {
				all.Go(func() { answers[i] = send(t, client, call("k", five)) })
			}
			all.Wait()
			for _, answer := range answers {
				assert.Equal(t, answers[0], answer)
			}
			assert.Contains(t, answers[0], `"run":1`)
			assert.Equal(t, "KEY_REUSED", send(t, client, call("k", order{Order: "o-2"})))
			assert.Contains(t, send(t, client, call("", five)), `"run":2`)
			assert.Contains(t, send(t, client, call("", five)), `"run":3`)
			assert.EqualValues(t, 3, s.runs.Load())
		})
	}
}

// A call that waits longer than Config.Wait is told to try again later.
func TestWaitingEnds(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	s := newService(t, settings{dedup: func(c *dedup.Config) { c.Wait = 10 * time.Millisecond },
		handle: func(context.Context, *mcp.CallToolRequest, int64) (*mcp.CallToolResult, error) {
			close(began)
			<-end
			return nil, nil
		}})
	client, first := s.client(t), make(chan string, 1)
	go func() { first <- send(t, client, call("k", five)) }()
	receives(t, began, "run")
	_, err := client.CallTool(t.Context(), call("k", five))
	close(end)
	data, ok := reason(err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "IN_FLIGHT", data.Reason)
	assert.EqualValues(t, 1000, data.RetryAfterMillis)
	id, err := mcpadapter.RecordKey{Name: "payments", Tool: "charge", Key: "k"}.ID("mcp")
	require.NoError(t, err)
	assert.Equal(t, hex.EncodeToString(id[:]), data.KeyID)
	answer := receives(t, first, "answer")
	assert.Equal(t, answer, send(t, client, call("k", five)))
}

// A client's timeout, which is the usual reason for a retry, leaves the tool at work, and the retry
// gets its result.
func TestToolOutlivesItsClient(t *testing.T) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			began, end := make(chan struct{}), make(chan struct{})
			ended := make(chan error, 1)
			s := newService(t, settings{handle: func(ctx context.Context, _ *mcp.CallToolRequest,
				_ int64) (*mcp.CallToolResult, error) {
				close(began)
				<-end
				ended <- ctx.Err()
				return nil, nil
			}})
			ctx, cancel := context.WithCancel(t.Context())
			client, gone := connect(s, t), make(chan error, 1)
			go func() {
				_, err := client.CallTool(ctx, call("k", five))
				gone <- err
			}()
			receives(t, began, "run")
			cancel()
			require.Error(t, receives(t, gone, "end of the call"))
			retry := make(chan string, 1)
			go func() { retry <- send(t, client, call("k", five)) }()
			assert.Eventually(t, func() bool { return s.calls.Load() == 2 }, 10*time.Second,
				time.Millisecond)
			close(end)
			assert.NoError(t, receives(t, ended, "end of the tool"))
			assert.Contains(t, receives(t, retry, "answer"), `"run":1`)
			assert.EqualValues(t, 1, s.runs.Load())
		})
	}
}

// With CancelWithClient a tool ends with its client. Timeout ends every tool. A destructive tool
// leaves its key uncertain, another one frees it.
func TestToolIsCanceled(t *testing.T) {
	with := mcpadapter.Config{CancelWithClient: true}
	for name, row := range map[string]struct {
		cfg    mcpadapter.Config
		cancel bool
		hints  *mcp.ToolAnnotations
		why    string
		then   string
	}{
		"by its client":              {with, true, idempotent, "context canceled", `"run":2`},
		"by its client, destructive": {with, true, nil, "context canceled", "UNCERTAIN"},
		"by Timeout": {mcpadapter.Config{Timeout: time.Millisecond}, false, idempotent,
			"mcpadapter: Timeout has passed: context deadline exceeded", `"run":2`},
	} {
		t.Run(name, func(t *testing.T) {
			began, ended := make(chan struct{}, 9), make(chan string, 9)
			s := newService(t, settings{cfg: row.cfg, hints: row.hints,
				handle: func(ctx context.Context, _ *mcp.CallToolRequest,
					run int64) (*mcp.CallToolResult, error) {
					if run > 1 {
						return nil, nil
					}
					began <- struct{}{}
					<-ctx.Done()
					ended <- context.Cause(ctx).Error()
					return nil, ctx.Err()
				}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			client := s.client(t)
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				_, _ = client.CallTool(ctx, call("k", five))
			}()
			receives(t, began, "run")
			if row.cancel {
				cancel()
			}
			assert.Equal(t, row.why, receives(t, ended, "end of the tool"))
			receives(t, gone, "answer")
			assert.Contains(t, send(t, client, call("k", five)), row.then)
		})
	}
}

// A tool that calls its own cancellation permanent, or whose error is final by the configuration,
// cannot know whether a later run has its effect.
func TestCanceledToolIsNeverFinal(t *testing.T) {
	raw := func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if r, ok := res.(*mcp.CallToolResult); ok && r.IsError {
				return nil, dedup.Permanent(r.GetError())
			}
			return res, err
		}
	}
	final := mcpadapter.Tool{FinalError: func(*mcp.CallToolResult) bool { return true }}
	for name, row := range map[string]struct {
		tool  mcpadapter.Tool
		hints *mcp.ToolAnnotations
		inner []mcp.Middleware
		then  string
	}{
		"a result":              {mcpadapter.Tool{}, idempotent, nil, `"run":2`},
		"a result, destructive": {mcpadapter.Tool{}, nil, nil, "UNCERTAIN"},
		"a final result":        {final, idempotent, nil, `"run":2`},
		"of the protocol": {mcpadapter.Tool{}, idempotent, []mcp.Middleware{raw},
			`"run":2`},
		"of the protocol, destructive": {mcpadapter.Tool{}, nil, []mcp.Middleware{raw},
			"UNCERTAIN"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, settings{hints: row.hints, inner: row.inner,
				cfg: mcpadapter.Config{Timeout: 100 * time.Millisecond, Default: row.tool},
				handle: func(ctx context.Context, _ *mcp.CallToolRequest,
					run int64) (*mcp.CallToolResult, error) {
					if run > 1 {
						return nil, nil
					}
					<-ctx.Done()
					return nil, dedup.Permanent(ctx.Err())
				}})
			client := s.client(t)
			assert.Contains(t, send(t, client, call("k", five)), "deadline exceeded")
			assert.Contains(t, send(t, client, call("k", five)), row.then)
		})
	}
}

// A call that waits ends with its client, and does not run the tool when its turn comes.
func TestWaiterGoesWithItsClient(t *testing.T) {
	began, end := make(chan struct{}, 9), make(chan struct{})
	finish := sync.OnceFunc(func() { close(end) })
	left := make(chan error, 9)
	outer := func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if method == "tools/call" {
				left <- err
			}
			return res, err
		}
	}
	s := newService(t, settings{outer: []mcp.Middleware{outer}, hints: idempotent,
		dedup: func(c *dedup.Config) { c.Wait = time.Minute },
		handle: func(context.Context, *mcp.CallToolRequest, int64) (*mcp.CallToolResult, error) {
			began <- struct{}{}
			<-end
			return nil, errors.New("try again")
		}})
	defer finish()
	client := s.client(t)
	go func() { _, _ = client.CallTool(context.Background(), call("k", five)) }()
	receives(t, began, "run")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = client.CallTool(ctx, call("k", five)) }()
	assert.Eventually(t, func() bool { return s.calls.Load() == 2 }, 10*time.Second,
		time.Millisecond)
	cancel()
	assert.Error(t, receives(t, left, "end of the waiting call"))
	finish()
	assert.NoError(t, receives(t, left, "end of the first call"))
	assert.EqualValues(t, 1, s.runs.Load())
}

// A panic is passed on. It frees the key of an idempotent tool, and leaves that of a destructive
// one uncertain.
func TestPanic(t *testing.T) {
	for then, hints := range map[string]*mcp.ToolAnnotations{
		`"run":2`: idempotent, "UNCERTAIN": nil,
	} {
		t.Run(then, func(t *testing.T) {
			s := newService(t, settings{hints: hints, outer: []mcp.Middleware{recovering},
				handle: func(_ context.Context, _ *mcp.CallToolRequest,
					run int64) (*mcp.CallToolResult, error) {
					if run == 1 {
						panic("boom")
					}
					return nil, nil
				}})
			client := s.client(t)
			assert.Contains(t, send(t, client, call("k", five)), "panic: boom")
			assert.Contains(t, send(t, client, call("k", five)), then)
		})
	}
}
