package grpcadapter_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceward/onceward/contrib/grpcadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/internal/encrypted"
)

func TestWhatIsRefused(t *testing.T) {
	run := answering(dedup.Result[[]byte]{}, nil)
	key := bytes.Repeat([]byte{1}, 32)
	for name, c := range map[string]struct {
		run   httpadapter.Runner
		scope grpcadapter.Scope
		cfg   grpcadapter.Config
		field string
	}{
		"no runner":  {nil, byAccount, grpcadapter.Config{}, "Runner"},
		"no results": {&fake{}, byAccount, grpcadapter.Config{}, "Runner"},
		"no scope":   {run, nil, grpcadapter.Config{}, "Scope"},
		"in flight": {run, byAccount, grpcadapter.Config{MaxInFlight: -1},
			"grpcadapter.Config.MaxInFlight"},
		"small limit": {run, byAccount, grpcadapter.Config{ResponseLimit: 255},
			"grpcadapter.Config.ResponseLimit"},
		"negative limit": {run, byAccount, grpcadapter.Config{ResponseLimit: -1},
			"grpcadapter.Config.ResponseLimit"},
		"limit of the runner": {run, byAccount, grpcadapter.Config{ResponseLimit: 1<<20 + 1},
			"grpcadapter.Config.ResponseLimit"},
		"timeout": {run, byAccount, grpcadapter.Config{Timeout: -1},
			"grpcadapter.Config.Timeout"},
		"retry after": {run, byAccount, grpcadapter.Config{RetryAfter: -1},
			"grpcadapter.Config.RetryAfter"},
		"plain and no seal": {run, byAccount, grpcadapter.Config{AcceptPlain: true},
			"grpcadapter.Config.AcceptPlain"},
		"short seal": {run, byAccount, grpcadapter.Config{Seal: [][]byte{key[1:]}},
			"grpcadapter.Config.Seal"},
		"version 0": {run, byAccount,
			grpcadapter.Config{FingerprintKey: &httpadapter.FingerprintKey{Key: key}},
			"grpcadapter.Config.FingerprintKey"},
		"short fingerprintkey": {run, byAccount,
			grpcadapter.Config{FingerprintKey: &httpadapter.FingerprintKey{Version: 1}},
			"grpcadapter.Config.FingerprintKey"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := grpcadapter.UnaryServerInterceptor(c.run, c.scope, c.cfg)
			wantInputError(t, err, c.field)
		})
	}
}

func wantInputError(t *testing.T, err error, field string) {
	t.Helper()
	var input *dedup.InputError
	if assert.ErrorAs(t, err, &input, field) {
		assert.Equal(t, field, input.Field)
	}
}

// recording is a Runner that remembers what is stored, and what was asked with.
type recording struct {
	httpadapter.Runner
	stored []byte
	req    dedup.Request
}

func (r *recording) Run(ctx context.Context, key string, effect httpadapter.Effect,
	opts ...dedup.Option) (dedup.Result[[]byte], error) {
	r.req = dedup.Request{Key: key}
	for _, opt := range opts {
		opt(&r.req)
	}
	res, err := r.Runner.Run(ctx, key, effect, opts...)
	r.stored = res.Value
	return res, err
}

func TestSeal(t *testing.T) {
	one, two := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	run := &recording{Runner: newClaimed(t, newDeduper(t, nil))}
	over := func(keys ...[]byte) *service {
		return newServiceOver(t, run, byAccount, grpcadapter.Config{Seal: keys}, counted())
	}
	wantValue(t, over(one).call(t.Context(), charge, "k", "secret"), "secret-1", false)
	assert.NotContains(t, string(run.stored), "secret")
	assert.EqualValues(t, 0x81, run.stored[0])
	wantValue(t, over(two, one).call(t.Context(), charge, "k", "secret"), "secret-1", true)
	wantOwn(t, over(two).call(t.Context(), charge, "k", "secret"), codes.DataLoss,
		"RESPONSE_UNREADABLE", 0, "-1")
	wantOwn(t, over().call(t.Context(), charge, "k", "secret"), codes.DataLoss,
		"RESPONSE_UNREADABLE", 0, "-1")

	wantValue(t, over().call(t.Context(), charge, "plain", "v"), "v-1", false)
	wantOwn(t, over(one).call(t.Context(), charge, "plain", "v"), codes.DataLoss,
		"RESPONSE_UNREADABLE", 0, "-1")
	plain := newServiceOver(t, run, byAccount,
		grpcadapter.Config{Seal: [][]byte{one}, AcceptPlain: true}, counted())
	wantValue(t, plain.call(t.Context(), charge, "plain", "v"), "v-1", true)
}

// Stored keys and responses have a format that another build must read.
func TestGolden(t *testing.T) {
	run := &recording{Runner: newClaimed(t, newDeduper(t, nil))}
	s := newServiceOver(t, run, byAccount,
		grpcadapter.Config{Fingerprint: func(string, proto.Message) []byte { return []byte("f") }},
		func(_ context.Context, req *wrapperspb.StringValue) (any, error) {
			if req.GetValue() == "" {
				return nil, status.Error(codes.AlreadyExists, "twice")
			}
			return req, nil
		})
	s.call(t.Context(), charge, "k", "paid")
	assert.Equal(t, "\x01\x01\x00\x01\x08type-url\x01\x2ftype.googleapis.com/"+
		"google.protobuf.StringValue\x0a\x04paid", string(run.stored))
	assert.Equal(t, "k", run.req.Key)
	assert.Equal(t, encrypted.ScopeOf("grpc", "1", "", "acme", charge), run.req.Scope)
	plain, _ := encrypted.NewDigester("", 0, nil)
	assert.Equal(t, plain.Sum([]byte{1}, []byte(charge), []byte("f")), run.req.Fingerprint)
	s.call(t.Context(), charge, "error", "")
	assert.Equal(t, "\x01\x01\x06\x00\x08\x06\x12\x05twice", string(run.stored))
}

func TestFingerprintKey(t *testing.T) {
	run := &recording{Runner: newClaimed(t, newDeduper(t, nil))}
	cfg := grpcadapter.Config{
		Fingerprint:    func(string, proto.Message) []byte { return []byte("f") },
		FingerprintKey: &httpadapter.FingerprintKey{Version: 3, Key: bytes.Repeat([]byte{1}, 32)},
	}
	s := newServiceOver(t, run, byAccount, cfg, counted())
	s.call(t.Context(), charge, "k", "v")
	assert.EqualValues(t, 131, run.req.Fingerprint[0])
}

// Resolve finds out that the effect has happened, and has its response replayed.
func TestResolve(t *testing.T) {
	for name, end := range map[string]error{"response": nil,
		"error": status.Error(codes.AlreadyExists, "found")} {
		t.Run(name, func(t *testing.T) {
			d := newDeduper(t, func(c *dedup.Config) {
				c.Resolve = func(ctx context.Context, _ string, _ dedup.Record) (dedup.Resolution,
					error) {
					data, err := grpcadapter.EncodeResponse(ctx, wrapperspb.String("found"), end)
					return dedup.Happened(data), err
				}
			})
			cfg := grpcadapter.Config{Seal: [][]byte{bytes.Repeat([]byte{1}, 32)}}
			s := newServiceOver(t, newClaimed(t, d), byAccount, cfg,
				func(ctx context.Context, _ *wrapperspb.StringValue) (any, error) {
					_, err := grpcadapter.EncodeResponse(ctx, nil, nil)
					wantInputError(t, err, "Response")
					_, err = grpcadapter.EncodeResponse(ctx, nil, status.Error(17, "x"))
					wantInputError(t, err, "Error")
					assert.NoError(t, dedup.MarkIrreversible(ctx))
					return nil, status.Error(codes.Unavailable, "the bank does not answer")
				})
			s.call(t.Context(), charge, "k", "v")
			r := s.call(t.Context(), charge, "k", "v")
			assert.True(t, r.replayed())
			assert.Equal(t, status.Code(end), status.Code(r.err))
			if end == nil {
				assert.Equal(t, "found", r.value)
			}
			s.wantRuns(t, 1)
		})
	}
	_, err := grpcadapter.EncodeResponse(t.Context(), wrapperspb.String("x"), nil)
	wantInputError(t, err, "Context")
}

func infoOf(method string) *grpc.UnaryServerInfo {
	return &grpc.UnaryServerInfo{FullMethod: method}
}

// direct calls without a server, the last interceptor first.
func direct(t *testing.T, ctx context.Context, method string, req any,
	interceptors ...grpc.UnaryServerInterceptor) (any, error) {
	t.Helper()
	handler := grpc.UnaryHandler(func(_ context.Context, req any) (any, error) { return req, nil })
	for _, icpt := range interceptors {
		inner := handler
		handler = func(ctx context.Context, req any) (any, error) {
			return icpt(ctx, req, infoOf(method), inner)
		}
	}
	return handler(ctx, req)
}

// The second interceptor of a chain lets the key of the first pass.
func TestNested(t *testing.T) {
	once, err := grpcadapter.UnaryServerInterceptor(newClaimed(t, newDeduper(t, nil)),
		grpcadapter.Unscoped, grpcadapter.Config{Timeout: time.Minute})
	require.NoError(t, err)
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(grpcadapter.KeyMetadata, "k"))
	for range 2 {
		resp, err := direct(t, ctx, charge, wrapperspb.String("v"), once, once)
		require.NoError(t, err)
		require.IsType(t, &wrapperspb.StringValue{}, resp)
		assert.Equal(t, "v", resp.(*wrapperspb.StringValue).GetValue())
	}
	_, err = direct(t, ctx, charge, "no message", once)
	assert.Equal(t, codes.Unimplemented, status.Code(err))
	for method, code := range map[string]codes.Code{
		"/grpc.health.v1.Health/Check":           codes.OK,
		"/grpc.reflection.v1.ServerReflection/X": codes.OK,
		"/grpc.channelz.v1.Channelz/GetServer":   codes.OK,
		"/grpc.lookup.v1.X/Y":                    codes.InvalidArgument,
		"/healthy.Service/Check":                 codes.InvalidArgument,
	} {
		_, err := direct(t, t.Context(), method, wrapperspb.String("v"), once)
		assert.Equal(t, code, status.Code(err), "%s without a key", method)
	}
}
