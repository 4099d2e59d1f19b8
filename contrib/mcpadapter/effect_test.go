package mcpadapter_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/mcpadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

var (
	errLost   = errors.New("connection reset")
	additive  = &mcp.ToolAnnotations{DestructiveHint: new(bool)}
	readOnly  = &mcp.ToolAnnotations{ReadOnlyHint: true}
	itsResult = &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "refused"}},
		IsError: true}
)

// Each row has the first answer, and the answer to a second call with the key. The tool's
// annotations say whether it may run again.
func TestEndsOfATool(t *testing.T) {
	final := mcpadapter.Config{Default: mcpadapter.Tool{
		FinalError: func(res *mcp.CallToolResult) bool { return res.IsError }}}
	overridden := mcpadapter.Config{Default: mcpadapter.Tool{Annotations: idempotent}}
	readOnlyBySetting := mcpadapter.Config{Default: mcpadapter.Tool{Annotations: readOnly}}
	refused := &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no such order"}
	broken := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "broken"}
	required := mcpadapter.Config{Default: mcpadapter.Tool{Required: true}}
	for name, row := range map[string]struct {
		cfg         mcpadapter.Config
		hints       *mcp.ToolAnnotations
		res         *mcp.CallToolResult
		err         error
		first, then string
	}{
		"a result":                {mcpadapter.Config{}, nil, nil, nil, ran, ran},
		"a result, idempotent":    {mcpadapter.Config{}, idempotent, nil, nil, ran, ran},
		"a result, read-only":     {mcpadapter.Config{}, readOnly, nil, nil, ran, again},
		"read-only by the config": {readOnlyBySetting, nil, nil, nil, ran, again},
		"an error, destructive":   {mcpadapter.Config{}, nil, nil, errLost, "reset", "UNCERTAIN"},
		"an error, additive":      {mcpadapter.Config{}, additive, nil, errLost, "reset", again},
		"an error, idempotent":    {mcpadapter.Config{}, idempotent, nil, errLost, "reset", again},
		"an error, idempotent by the config": {overridden, nil, nil, errLost, "reset",
			again},
		"an error before the effect": {mcpadapter.Config{}, nil, nil, dedup.NotStarted(errLost),
			"reset", again},
		"an error for good": {mcpadapter.Config{}, nil, nil, dedup.Permanent(errLost), "reset",
			"reset"},
		"a result of an error": {mcpadapter.Config{}, nil, itsResult, nil, "refused",
			"UNCERTAIN"},
		"a result of an error, idempotent": {mcpadapter.Config{}, idempotent, itsResult, nil,
			"refused", again},
		"a final result of an error": {final, nil, itsResult, nil, "refused", "refused"},
		"a refusal by the protocol":  {mcpadapter.Config{}, nil, nil, refused, "no such", again},
		"an error of the protocol": {mcpadapter.Config{}, nil, nil, broken, "broken",
			"UNCERTAIN"},
		"a required key": {required, readOnly, nil, nil, ran, again},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, settings{cfg: row.cfg, hints: row.hints,
				handle: func(_ context.Context, _ *mcp.CallToolRequest,
					run int64) (*mcp.CallToolResult, error) {
					if run > 1 {
						return nil, nil
					}
					return row.res, row.err
				}})
			client := s.client(t)
			first := send(t, client, call("k", five))
			assert.Contains(t, first, row.first)
			then := send(t, client, call("k", five))
			assert.Contains(t, then, row.then)
			if row.first == row.then {
				assert.Equal(t, first, then)
			}
		})
	}
}

// An error of the protocol that is for good is recorded as a failure: a JSON-RPC error is not a
// result to store.
func TestFailureForGood(t *testing.T) {
	raw := func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if method == "tools/call" {
				return nil, dedup.Permanent(errors.New("the account is closed"))
			}
			return res, err
		}
	}
	s := newService(t, settings{inner: []mcp.Middleware{raw}})
	client := s.client(t)
	assert.Contains(t, send(t, client, call("k", five)), "the account is closed")
	_, err := client.CallTool(t.Context(), call("k", five))
	data, _ := reason(err)
	assert.Equal(t, "FAILED", data.Reason)
	assert.ErrorContains(t, err, "this call has failed for good: the account is closed")
	assert.EqualValues(t, 1, s.runs.Load())
}

// bank is a downstream that can be asked what it has done.
type bank map[string]string // receipts by key

// A destructive tool whose answer is lost makes the key uncertain. The retry asks the downstream,
// and gets the result of the first run, or runs again when nothing has happened.
func TestLostAnswerIsAskedAbout(t *testing.T) {
	for name, row := range map[string]struct {
		arrives bool
		then    string
		runs    int64
	}{
		"the effect has happened": {true, "receipt of o-1", 1},
		"nothing has happened":    {false, again, 2},
	} {
		t.Run(name, func(t *testing.T) {
			downstream := bank{}
			resolve := func(ctx context.Context, key string,
				_ dedup.Record) (dedup.Resolution, error) {
				attempt, _ := dedup.FromContext(ctx)
				req, ok := mcpadapter.RequestFrom(ctx)
				assert.True(t, ok)
				assert.Equal(t, "charge", req.Params.Name)
				assert.Equal(t, "k", key)
				found, ok := downstream[attempt.DownstreamKey("bank")]
				if !ok {
					return dedup.DidNotHappen(), nil
				}
				stored, err := mcpadapter.EncodeResult(&mcp.CallToolResult{
					Content: []mcp.Content{&mcp.TextContent{Text: found}}})
				return dedup.Happened(stored), err
			}
			s := newService(t, settings{dedup: func(c *dedup.Config) { c.Resolve = resolve },
				handle: func(ctx context.Context, req *mcp.CallToolRequest,
					run int64) (*mcp.CallToolResult, error) {
					if run > 1 {
						return nil, nil
					}
					if row.arrives {
						attempt, _ := dedup.FromContext(ctx)
						downstream[attempt.DownstreamKey("bank")] = "receipt of o-1"
					}
					return nil, errLost
				}})
			client := s.client(t)
			assert.Contains(t, send(t, client, call("k", five)), "reset")
			assert.Equal(t, "KEY_REUSED", send(t, client, call("k", order{Order: "o-2"})))
			answer := send(t, client, call("k", five))
			assert.Contains(t, answer, row.then)
			assert.Equal(t, answer, send(t, client, call("k", five)))
			assert.Equal(t, row.runs, s.runs.Load())
		})
	}
}

// Without a Resolve the key stays uncertain until an operator decides.
func TestOperatorDecides(t *testing.T) {
	s := newService(t, settings{handle: func(_ context.Context, _ *mcp.CallToolRequest,
		run int64) (*mcp.CallToolResult, error) {
		if run == 1 {
			return nil, errLost
		}
		return nil, nil
	}})
	client := s.client(t)
	assert.Contains(t, send(t, client, call("k", five)), "reset")
	_, err := client.CallTool(t.Context(), call("k", five))
	data, _ := reason(err)
	assert.Equal(t, "UNCERTAIN", data.Reason)
	assert.EqualValues(t, 30_000, data.RetryAfterMillis)
	scope := dedup.WithScope(mcpadapter.RecordKey{Name: "payments", Tool: "charge"}.Scope())
	_, err = s.d.Mark(t.Context(), "k", scope)
	require.NoError(t, err)
	assert.Equal(t, "RESULT_NOT_KEPT", send(t, client, call("k", five)))
	require.NoError(t, s.d.Forget(t.Context(), "k", scope))
	assert.Contains(t, send(t, client, call("k", five)), again)
}

// The first call gets a result that is too large to keep; later ones hear that the call is done.
func TestResultThatIsTooLarge(t *testing.T) {
	s := newService(t, settings{dedup: func(c *dedup.Config) { c.ResultLimit = 1000 },
		handle: func(context.Context, *mcp.CallToolRequest, int64) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{
				&mcp.TextContent{Text: strings.Repeat("x", 1000)}}}, nil
		}})
	client := s.client(t)
	assert.Contains(t, send(t, client, call("k", five)), "xxx")
	assert.Equal(t, "RESULT_NOT_KEPT", send(t, client, call("k", five)))
	assert.EqualValues(t, 1, s.runs.Load())
}

// A replay has all that the first answer had, and all digits of a number.
func TestReplayIsExact(t *testing.T) {
	more := func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if called, ok := res.(*mcp.CallToolResult); ok {
				called.Meta = mcp.Meta{"trace": "t-1"}
				called.StructuredContent = json.RawMessage(`{"run":9007199254740993}`)
				called.Content = append(called.Content,
					&mcp.ImageContent{Data: []byte{0, 1}, MIMEType: "image/png"},
					&mcp.ResourceLink{URI: "order:o-1", Name: "o-1"})
			}
			return res, err
		}
	}
	var sent []json.RawMessage
	wire := func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if called, ok := res.(*mcp.CallToolResult); ok {
				text, _ := json.Marshal(called)
				sent = append(sent, text)
			}
			return res, err
		}
	}
	s := newService(t, settings{inner: []mcp.Middleware{more}, outer: []mcp.Middleware{wire}})
	client := s.client(t)
	first := send(t, client, call("k", five))
	assert.Contains(t, first, "image/png")
	assert.Contains(t, first, "t-1")
	assert.Equal(t, first, send(t, client, call("k", five)))
	// a client of another version of the protocol, to which results have no type
	assert.Contains(t, send(t, s.connect(t, nil, "2025-06-18"), call("k", five)), "image/png")
	require.Len(t, sent, 3)
	assert.Contains(t, string(sent[1]), `"run":9007199254740993`)
	assert.JSONEq(t, string(sent[0]), string(sent[1]))
	assert.EqualValues(t, 1, s.runs.Load())
}

// A tool that asks its user first has done nothing yet. Its answer is recorded, in the protocols
// that ask within the call and in those that call again.
func TestToolThatAsksItsUser(t *testing.T) {
	for _, version := range []string{"2025-06-18", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			s := newService(t, settings{handle: func(_ context.Context, req *mcp.CallToolRequest,
				_ int64) (*mcp.CallToolResult, error) {
				if req.Params.InputResponses == nil {
					return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{
						"sure": &mcp.ElicitParams{Message: "sure?", Mode: "form"}}}, nil
				}
				return nil, nil
			}})
			asked := 0
			client := s.connect(t, &mcp.ClientOptions{ElicitationHandler: func(context.Context,
				*mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked++
				return &mcp.ElicitResult{Action: "accept"}, nil
			}}, version)
			first := send(t, client, call("k", five))
			assert.Contains(t, first, again, "the run that has asked comes first")
			assert.Equal(t, first, send(t, client, call("k", five)))
			assert.Equal(t, 1, asked)
			assert.EqualValues(t, 2, s.runs.Load())
		})
	}
}

// atomicRunner has the effect and the record in one transaction. It runs each effect twice.
type atomicRunner struct {
	httpadapter.Runner
	undone []bool
}

func (*atomicRunner) Atomic() bool { return true }

func (a *atomicRunner) Run(ctx context.Context, key string, effect httpadapter.Effect,
	opts ...dedup.Option) (dedup.Result[[]byte], error) {
	return a.Runner.Run(ctx, key, func(ctx context.Context) ([]byte, bool, error) {
		if _, _, err := effect(ctx); err != nil {
			return nil, false, err
		}
		result, undo, err := effect(ctx)
		a.undone = append(a.undone, undo)
		return result, undo, err
	}, opts...)
}

// Over a Runner that is Atomic nothing is declared: an error undoes the effect. A final error is
// recorded, and what the tool has written is undone.
func TestAtomicRunner(t *testing.T) {
	var atomic *atomicRunner
	s := newService(t, settings{run: func(run httpadapter.Runner) httpadapter.Runner {
		atomic = &atomicRunner{Runner: run}
		return atomic
	}, handle: func(_ context.Context, _ *mcp.CallToolRequest,
		run int64) (*mcp.CallToolResult, error) {
		switch {
		case run == 1:
			return nil, errLost
		case run > 3:
			return nil, dedup.Permanent(errLost)
		}
		return nil, nil
	}})
	client := s.client(t)
	assert.Contains(t, send(t, client, call("k", five)), "reset")
	assert.Contains(t, send(t, client, call("k", five)), `"run":3`)
	assert.Contains(t, send(t, client, call("k", five)), `"run":3`)
	assert.Contains(t, send(t, client, call("final", five)), "reset")
	assert.Contains(t, send(t, client, call("final", five)), "reset")
	assert.Equal(t, []bool{false, true}, atomic.undone)
	assert.EqualValues(t, 5, s.runs.Load())
}
