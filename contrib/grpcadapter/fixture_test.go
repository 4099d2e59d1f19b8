package grpcadapter_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceward/onceward/contrib/grpcadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

const (
	charge = "/pay.Pay/Charge"
	refund = "/pay.Pay/Refund"
)

type handleFunc func(ctx context.Context, req *wrapperspb.StringValue) (any, error)

// description is what a compiler would make of a service with two methods.
func description(methods ...string) *grpc.ServiceDesc {
	desc := &grpc.ServiceDesc{ServiceName: "pay.Pay", HandlerType: (*any)(nil)}
	for _, name := range methods {
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: name,
			Handler: func(srv any, ctx context.Context, dec func(any) error,
				icpt grpc.UnaryServerInterceptor) (any, error) {
				in := new(wrapperspb.StringValue)
				if err := dec(in); err != nil {
					return nil, err
				}
				handle := srv.(*service)
				info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/pay.Pay/" + name}
				return icpt(ctx, in, info, func(ctx context.Context, req any) (any, error) {
					handle.runs.Add(1)
					return handle.handle(ctx, req.(*wrapperspb.StringValue))
				})
			}})
	}
	return desc
}

// byAccount takes the principal from the metadata, as a test may.
func byAccount(ctx context.Context, _ string) (string, error) {
	if v := metadata.ValueFromIncomingContext(ctx, "account"); len(v) == 1 {
		return v[0], nil
	}
	return "", nil
}

// service is a server behind the interceptor, and a client of it.
type service struct {
	d      *dedup.Deduper
	conn   *grpc.ClientConn
	handle handleFunc
	runs   atomic.Int64
	// Of a leaver: the contexts of its calls; left is closed when its first client has gone.
	clients chan context.Context
	left    chan struct{}
}

func newDeduper(t *testing.T, change func(*dedup.Config)) *dedup.Deduper {
	t.Helper()
	cfg := dedup.Config{Namespace: "grpc", Window: 24 * time.Hour, LeaseTTL: 10 * time.Second}
	if change != nil {
		change(&cfg)
	}
	d, err := dedup.New(dedup.Memory(10_000), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

func newClaimed(t *testing.T, d *dedup.Deduper) httpadapter.Runner {
	t.Helper()
	run, err := httpadapter.Claimed(d)
	require.NoError(t, err)
	return run
}

func newService(t *testing.T, cfg grpcadapter.Config, handle handleFunc,
	opts ...grpc.DialOption) *service {
	t.Helper()
	d := newDeduper(t, nil)
	s := newServiceOver(t, newClaimed(t, d), byAccount, cfg, handle, opts...)
	s.d = d
	return s
}

func newServiceOver(t *testing.T, run httpadapter.Runner, scope grpcadapter.Scope,
	cfg grpcadapter.Config, handle handleFunc, opts ...grpc.DialOption) *service {
	t.Helper()
	once, err := grpcadapter.UnaryServerInterceptor(run, scope, cfg)
	require.NoError(t, err)
	s := &service{handle: handle}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(recovering, once),
		grpc.WaitForHandlers(true))
	server.RegisterService(description("Charge", "Refund"), s)
	s.conn = serve(t, server, opts...)
	return s
}

// serve returns a client of the server, until the test ends.
func serve(t *testing.T, server *grpc.Server, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))
	conn, err := grpc.NewClient("passthrough:///pay", opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		assert.NoError(t, <-served)
	})
	return conn
}

func recovering(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(codes.Internal, "panic: %v", p)
		}
	}()
	return handler(ctx, req)
}

// reply is all that a client sees.
type reply struct {
	value           string
	err             error
	header, trailer metadata.MD
}

// call is one of account acme; md are pairs added to its metadata.
func (s *service) call(ctx context.Context, method, key, value string, md ...string) *reply {
	md = append([]string{"account", "acme"}, md...)
	if key != "" {
		md = append(md, grpcadapter.KeyMetadata, key)
	}
	return s.send(ctx, method, value, md...)
}

func (s *service) send(ctx context.Context, method, value string, md ...string) *reply {
	r, out := &reply{}, new(wrapperspb.StringValue)
	r.err = s.conn.Invoke(metadata.AppendToOutgoingContext(ctx, md...), method,
		wrapperspb.String(value), out, grpc.Header(&r.header), grpc.Trailer(&r.trailer))
	r.value = out.GetValue()
	return r
}

func (s *service) wantRuns(t *testing.T, want int64) {
	t.Helper()
	assert.Equal(t, want, s.runs.Load(), "runs of the handler")
}

func (r *reply) reason() string {
	for _, detail := range status.Convert(r.err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok &&
			info.GetDomain() == grpcadapter.Domain {
			return info.GetReason()
		}
	}
	return ""
}

func (r *reply) delay() time.Duration {
	for _, detail := range status.Convert(r.err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

func (r *reply) replayed() bool {
	return fmt.Sprint(r.header[grpcadapter.ReplayedMetadata]) == "[true]"
}

func (r *reply) pushback() string {
	if v := r.trailer["grpc-retry-pushback-ms"]; len(v) == 1 {
		return v[0]
	}
	return ""
}

// wantOwn checks an error that the interceptor itself has made.
func wantOwn(t *testing.T, r *reply, code codes.Code, reason string, delay time.Duration,
	pushback string) {
	t.Helper()
	assert.Equal(t, code, status.Code(r.err), "%v", r.err)
	assert.Equal(t, reason, r.reason(), "%v", r.err)
	assert.Equal(t, delay, r.delay(), "%v", r.err)
	assert.Equal(t, pushback, r.pushback(), "%v", r.err)
	assert.False(t, r.replayed(), "%v", r.err)
}

func wantValue(t *testing.T, r *reply, value string, replayed bool) {
	t.Helper()
	assert.NoError(t, r.err)
	assert.Equal(t, value, r.value)
	assert.Equal(t, replayed, r.replayed(), "replayed")
}

// counted answers with a number that tells runs apart.
func counted() handleFunc {
	var n atomic.Int64
	return func(_ context.Context, req *wrapperspb.StringValue) (any, error) {
		return wrapperspb.String(fmt.Sprintf("%s-%d", req.GetValue(), n.Add(1))), nil
	}
}

// fake is a Runner that does what a test says.
type fake struct {
	do    func(ctx context.Context, effect httpadapter.Effect) (dedup.Result[[]byte], error)
	req   dedup.Request
	limit int

	atomic bool
}

func (f *fake) Run(ctx context.Context, _ string, effect httpadapter.Effect,
	opts ...dedup.Option) (dedup.Result[[]byte], error) {
	for _, opt := range opts {
		opt(&f.req)
	}
	return f.do(ctx, effect)
}

func (f *fake) Window() time.Duration { return 0 }
func (f *fake) ResultLimit() int      { return f.limit }
func (f *fake) Atomic() bool          { return f.atomic }

func answering(res dedup.Result[[]byte], err error) *fake {
	return &fake{limit: 1 << 20,
		do: func(context.Context, httpadapter.Effect) (dedup.Result[[]byte], error) {
			return res, err
		}}
}
