package http_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceward/onceward/httpadapter"
)

type word = wrapperspb.StringValue

// TestConnect: calls of connect-go's clients, in each protocol that needs no trailers, get the
// answer of the first call with their key, also if it is a failure that is kept. Without
// GRPCWebHeaders each replay is a protocol error for gRPC-Web.
func TestConnect(t *testing.T) {
	for _, row := range []struct {
		name     string
		options  []connect.ClientOption
		headers  []string
		readable bool
	}{
		{"Connect, protobuf", nil, nil, true},
		{"Connect, JSON", []connect.ClientOption{connect.WithProtoJSON()}, nil, true},
		{"gRPC-Web", []connect.ClientOption{connect.WithGRPCWeb()},
			httpadapter.GRPCWebHeaders(), true},
		{"gRPC-Web, compressed", []connect.ClientOption{connect.WithGRPCWeb(),
			connect.WithSendGzip()}, httpadapter.GRPCWebHeaders(), true},
		{"gRPC-Web, without its headers", []connect.ClientOption{connect.WithGRPCWeb()},
			nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			var runs atomic.Int64
			s := serving(t, nil, connected(t, row.headers, &runs))
			client := connect.NewClient[word, word](s.server.Client(),
				s.server.URL+"/shop.Shop/Pay", row.options...)
			pay := func(key, amount string) (string, string, error) {
				r := connect.NewRequest(wrapperspb.String(amount))
				r.Header().Set("Idempotency-Key", key)
				r.Header().Set("X-Account", "acme")
				a, err := client.CallUnary(context.Background(), r)
				if err != nil {
					var failure *connect.Error
					require.ErrorAs(t, err, &failure)
					return "", failure.Meta().Get("Idempotent-Replayed"), err
				}
				return a.Msg.GetValue(), a.Header().Get("Idempotent-Replayed"), nil
			}
			text, replayed, err := pay("k", "10 EUR")
			require.NoError(t, err)
			assert.Equal(t, "paid 10 EUR", text)
			assert.Empty(t, replayed)

			text, replayed, err = pay("k", "10 EUR")
			assert.EqualValues(t, 1, runs.Load())
			if !row.readable {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "paid 10 EUR", text)
			assert.Equal(t, "true", replayed)

			for _, replayed := range []string{"", "true"} {
				_, got, err := pay("f", "too much")
				assert.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
				assert.ErrorContains(t, err, "too much: not today")
				assert.Equal(t, replayed, got)
			}
			assert.EqualValues(t, 2, runs.Load())
		})
	}
}

// connected is a procedure of connect-go behind the middleware.
func connected(t *testing.T, headers []string, runs *atomic.Int64) http.Handler {
	p := memory.open(t, day, lease)
	m, err := httpadapter.New(p.run, account, httpadapter.Config{Headers: headers})
	require.NoError(t, err)
	return m.Handler(procedure(runs))
}

// procedure is the same without the middleware.
func procedure(runs *atomic.Int64) http.Handler {
	pay := func(_ context.Context, r *connect.Request[word]) (*connect.Response[word], error) {
		runs.Add(1)
		if r.Msg.GetValue() == "too much" {
			return nil, connect.NewError(connect.CodeInvalidArgument,
				errors.New("too much: not today"))
		}
		return connect.NewResponse(wrapperspb.String("paid " + r.Msg.GetValue())), nil
	}
	return connect.NewUnaryHandler("/shop.Shop/Pay", pay)
}

// TestGRPCBehindTheMiddleware: the protocol of gRPC needs trailers, which the middleware does not
// send. Every gRPC call with a key has its effect and fails at the client. The code of the page on
// frameworks refuses such calls before they run, and lets calls without a key pass.
func TestGRPCBehindTheMiddleware(t *testing.T) {
	for _, row := range []struct {
		name   string
		around func(m, h http.Handler) http.Handler
		code   connect.Code
		runs   int64
	}{
		{"wrong", func(m, _ http.Handler) http.Handler { return m }, connect.CodeInternal, 1},
		{"right", refuseKeyedGRPC, connect.CodeUnimplemented, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			var runs atomic.Int64
			bare := procedure(&runs)
			server := httptest.NewUnstartedServer(row.around(connected(t, nil, &runs), bare))
			server.EnableHTTP2 = true
			server.StartTLS()
			t.Cleanup(server.Close)
			for key, want := range map[string]struct {
				code connect.Code
				runs int64
			}{"k": {row.code, row.runs}, "": {0, 1}} {
				if key == "" && row.name == "wrong" {
					continue // its key is missing
				}
				runs.Store(0)
				client := connect.NewClient[word, word](server.Client(),
					server.URL+"/shop.Shop/Pay", connect.WithGRPC())
				r := connect.NewRequest(wrapperspb.String("10 EUR"))
				r.Header().Set("X-Account", "acme")
				if key != "" {
					r.Header().Set("Idempotency-Key", key)
				}
				_, err := client.CallUnary(t.Context(), r)
				assert.Equal(t, want.runs, runs.Load())
				if want.code == 0 {
					assert.NoError(t, err)
				} else {
					assert.Equal(t, want.code, connect.CodeOf(err), "%v", err)
				}
			}
		})
	}
}

// refuseKeyedGRPC is the recipe of the page on frameworks: m is behind the middleware, h is not.
func refuseKeyedGRPC(m, h http.Handler) http.Handler {
	errs := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol := r.Header.Get("Content-Type")
		switch {
		case !strings.HasPrefix(protocol, "application/grpc") ||
			strings.HasPrefix(protocol, "application/grpc-web"):
			m.ServeHTTP(w, r)
		case r.Header.Get("Idempotency-Key") != "":
			_ = errs.Write(w, r, connect.NewError(connect.CodeUnimplemented,
				errors.New("a call with a key must use the Connect protocol")))
		default:
			h.ServeHTTP(w, r)
		}
	})
}
