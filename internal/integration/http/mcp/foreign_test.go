package mcp_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/mcpadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// foreign is an example server of the SDK as it is, in a process of its own.
const foreign = "github.com/modelcontextprotocol/go-sdk/examples/server/sequentialthinking"

func startForeign(t *testing.T) *mcp.ClientSession {
	t.Helper()
	program := filepath.Join(t.TempDir(), "foreign")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, foreign)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	ctx := context.WithoutCancel(t.Context())
	cmd := exec.CommandContext(ctx, program)
	client, err := mcp.NewClient(&mcp.Implementation{Name: "proxy"}, nil).Connect(ctx,
		&mcp.CommandTransport{Command: cmd}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// proxy has the tools of another server. It can be told to lose the first answers of a tool.
type proxy struct {
	upstream *mcp.ClientSession
	calls    atomic.Int64
	lose     atomic.Int64
}

func (p *proxy) forward(ctx context.Context,
	req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	res, err := p.upstream.CallTool(ctx, &mcp.CallToolParams{Name: req.Params.Name,
		Arguments: req.Params.Arguments})
	if req.Params.Name == "continue_thinking" {
		p.calls.Add(1)
		if p.lose.Add(-1) >= 0 {
			return nil, errors.New("connection reset")
		}
	}
	return res, err
}

// review returns the thoughts that the foreign server has.
func (p *proxy) review(ctx context.Context) (string, error) {
	res, err := p.upstream.CallTool(ctx, &mcp.CallToolParams{Name: "review_thinking",
		Arguments: map[string]any{"sessionId": "s"}})
	if err != nil {
		return "", err
	}
	text, _ := res.Content[0].(*mcp.TextContent)
	return text.Text, nil
}

// resolve asks the foreign server whether it has the thought.
func (p *proxy) resolve(ctx context.Context, _ string, _ dedup.Record) (dedup.Resolution, error) {
	req, _ := mcpadapter.RequestFrom(ctx)
	review, err := p.review(ctx)
	if err != nil {
		return dedup.Resolution{}, err
	}
	for thought := range strings.SplitSeq(review, "\n") {
		_, text, _ := strings.Cut(thought, ". ")
		if text != "" && strings.Contains(string(req.Params.Arguments), `"`+text+`"`) {
			stored, err := mcpadapter.EncodeResult(result("it is there"))
			return dedup.Happened(stored), err
		}
	}
	return dedup.DidNotHappen(), nil
}

// wrap is a server before p that has all its tools, and the middleware.
func wrap(t *testing.T, p *proxy, store dedup.Store) *mcp.ClientSession {
	t.Helper()
	d, err := dedup.New(store, dedup.Config{Namespace: "mcp", Window: time.Hour,
		LeaseTTL: time.Second, Wait: 20 * time.Second, Resolve: p.resolve})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	run, err := httpadapter.Claimed(d)
	require.NoError(t, err)
	once, err := mcpadapter.New(run, mcpadapter.Unscoped, mcpadapter.Config{Name: "thinking",
		Tools: map[string]mcpadapter.Tool{"continue_thinking": {
			KeyFields: []string{"sessionId", "thought"}, Required: true}}})
	require.NoError(t, err)
	server := mcp.NewServer(&mcp.Implementation{Name: "proxy"}, nil)
	server.AddReceivingMiddleware(once)
	tools, err := p.upstream.ListTools(t.Context(), nil)
	require.NoError(t, err)
	for _, tool := range tools.Tools {
		server.AddTool(tool, p.forward)
	}
	here, there := mcp.NewInMemoryTransports()
	_, err = server.Connect(context.Background(), there, nil)
	require.NoError(t, err)
	client, err := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).
		Connect(context.Background(), here, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A server that is not ours books each thought that arrives. Behind the middleware a thought is
// there once: with twenty calls at a time, and when the answer of the first is lost.
func TestForeignServer(t *testing.T) {
	stores := map[string]func(*testing.T) dedup.Store{
		"memory": func(*testing.T) dedup.Store { return dedup.Memory(1000) },
		"redis": func(t *testing.T) dedup.Store {
			client := redis.NewClient(&redis.Options{Addr: servertest.Redis(t),
				ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = client.Close() })
			store, err := redisadapter.New(t.Context(), client,
				redisadapter.Options{Prefix: servertest.Prefix(t)})
			require.NoError(t, err)
			return store
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			p := &proxy{upstream: startForeign(t)}
			client := wrap(t, p, open(t))
			think := func(tool string, args map[string]any) string {
				args["sessionId"] = "s"
				res, err := client.CallTool(t.Context(),
					&mcp.CallToolParams{Name: tool, Arguments: args})
				return answer(res, err)
			}
			think("start_thinking", map[string]any{"problem": "sums"})
			all := func(thought string) []string {
				answers := make([]string, 20)
				var group sync.WaitGroup
				for i := range answers {
					group.Go(func() {
						answers[i] = think("continue_thinking", map[string]any{"thought": thought})
					})
				}
				group.Wait()
				return answers
			}
			first := all("one and one")
			for _, a := range first {
				assert.Equal(t, first[0], a)
			}
			assert.Contains(t, first[0], "one and one")

			p.lose.Store(1)
			lost := think("continue_thinking", map[string]any{"thought": "two"})
			assert.Contains(t, lost, "connection reset")
			for _, a := range all("two") {
				assert.Contains(t, a, "it is there")
			}
			assert.Equal(t, "KEY_REUSED", think("continue_thinking",
				map[string]any{"thought": "two", "estimatedTotal": 9}))
			assert.EqualValues(t, 2, p.calls.Load())
			review, err := p.review(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 1, strings.Count(review, "one and one"), review)
			assert.Equal(t, 1, strings.Count(review, ". two"), review)
		})
	}
}
