package mcpadapter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/mcpadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// order is what the tools of the tests get.
type order struct {
	Order  string `json:"order"`
	Amount int    `json:"amount"`
	Note   string `json:"note,omitempty"`
}

var five = order{Order: "o-1", Amount: 5}

// receipt is what they return: no two runs return the same.
type receipt struct {
	Run   int64  `json:"run"`
	Order string `json:"order"`
}

// handleFunc is what a tool does besides counting its runs.
type handleFunc func(ctx context.Context, req *mcp.CallToolRequest, run int64) (
	*mcp.CallToolResult, error)

// service is a server with the tools "charge" and "refund" behind the middleware.
type service struct {
	server *mcp.Server
	d      *dedup.Deduper
	runs   atomic.Int64
	calls  atomic.Int64  // that have reached the server
	twenty chan struct{} // closed when twenty have
	handle handleFunc
}

// settings of a service. The zero one has tools without annotations, which are destructive.
type settings struct {
	dedup     func(*dedup.Config)
	store     dedup.Store
	run       func(httpadapter.Runner) httpadapter.Runner
	cfg       mcpadapter.Config
	principal mcpadapter.Principal
	hints     *mcp.ToolAnnotations
	handle    handleFunc
	options   *mcp.ServerOptions
	outer     []mcp.Middleware // that run before the middleware
	inner     []mcp.Middleware // that run after it
}

var idempotent = &mcp.ToolAnnotations{IdempotentHint: true}

func newService(t *testing.T, set settings) *service {
	t.Helper()
	cfg := dedup.Config{Namespace: "mcp", Window: time.Hour, LeaseTTL: 10 * time.Second,
		Wait: 10 * time.Second}
	if set.dedup != nil {
		set.dedup(&cfg)
	}
	if set.store == nil {
		set.store = dedup.Memory(10_000)
	}
	d, err := dedup.New(set.store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	run, err := httpadapter.Claimed(d)
	require.NoError(t, err)
	if set.run != nil {
		run = set.run(run)
	}
	if set.principal == nil {
		set.principal = mcpadapter.Unscoped
	}
	set.cfg.Name = "payments"
	once, err := mcpadapter.New(run, set.principal, set.cfg)
	require.NoError(t, err)

	s := &service{d: d, handle: set.handle, twenty: make(chan struct{})}
	s.server = mcp.NewServer(&mcp.Implementation{Name: "payments"}, set.options)
	for _, name := range []string{"charge", "refund"} {
		mcp.AddTool(s.server, &mcp.Tool{Name: name, Annotations: set.hints}, s.tool)
	}
	all := append([]mcp.Middleware{s.count}, set.outer...)
	s.server.AddReceivingMiddleware(append(append(all, once), set.inner...)...)
	return s
}

func (s *service) count(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method == "tools/call" && s.calls.Add(1) == 20 {
			close(s.twenty)
		}
		return next(ctx, method, req)
	}
}

// tool has an effect in each run.
func (s *service) tool(ctx context.Context, req *mcp.CallToolRequest,
	in order) (*mcp.CallToolResult, receipt, error) {
	run := s.runs.Add(1)
	if s.handle != nil {
		if res, err := s.handle(ctx, req, run); res != nil || err != nil {
			return res, receipt{}, err
		}
	}
	return nil, receipt{Run: run, Order: in.Order}, nil
}

// client is one in memory.
func (s *service) client(t *testing.T) *mcp.ClientSession {
	t.Helper()
	return s.connect(t, nil, "")
}

func (s *service) connect(t *testing.T, opts *mcp.ClientOptions,
	version string) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	server, err := s.server.Connect(context.Background(), there, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	client, err := mcp.NewClient(&mcp.Implementation{Name: "agent"}, opts).Connect(
		context.Background(), here, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// overHTTP is a client over streamable HTTP, whose bearer token is the name of its user.
func (s *service) overHTTP(t *testing.T, user string) *mcp.ClientSession {
	t.Helper()
	all := func(*http.Request) *mcp.Server { return s.server }
	handler := mcp.NewStreamableHTTPHandler(all, nil)
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}, nil
	}
	server := httptest.NewServer(auth.RequireBearerToken(verify, nil)(handler))
	t.Cleanup(server.Close)
	transport := &mcp.StreamableClientTransport{Endpoint: server.URL,
		HTTPClient: &http.Client{Transport: bearer(user)}}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).
		Connect(context.Background(), transport, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// transports are the ways to a service.
var transports = map[string]func(*service, *testing.T) *mcp.ClientSession{
	"in memory": (*service).client,
	"streamable HTTP": func(s *service, t *testing.T) *mcp.ClientSession {
		return s.overHTTP(t, "ann")
	},
}

// call is one of the tool "charge", with a key in _meta unless it is "".
func call(key string, args any) *mcp.CallToolParams {
	p := &mcp.CallToolParams{Name: "charge", Arguments: args}
	if key != "" {
		p.Meta = mcp.Meta{mcpadapter.DefaultMetaKey: key}
	}
	return p
}

// send returns the answer as text: the result in JSON, or the reason of an error.
func send(t *testing.T, client *mcp.ClientSession, params *mcp.CallToolParams) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	res, err := client.CallTool(ctx, params)
	if err != nil {
		if data, ok := reason(err); ok {
			return data.Reason
		}
		return err.Error()
	}
	text, err := json.Marshal(res)
	require.NoError(t, err)
	return string(text)
}

func reason(err error) (data mcpadapter.ErrorData, ok bool) {
	var wire *jsonrpc.Error
	ok = errors.As(err, &wire) && json.Unmarshal(wire.Data, &data) == nil &&
		data.Domain == "onceward"
	return data, ok
}

// receives waits for an event.
func receives[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(30 * time.Second):
		require.FailNow(t, "no "+what)
	}
	return v
}

// recovering keeps the process of the test alive.
func recovering(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		return next(ctx, method, req)
	}
}
