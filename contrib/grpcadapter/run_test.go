package grpcadapter_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceward/onceward/contrib/grpcadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// waiting is a Runner whose calls wait for a key in flight.
func waiting(t *testing.T) httpadapter.Runner {
	t.Helper()
	return newClaimed(t, newDeduper(t, func(c *dedup.Config) {
		c.Wait, c.MaxWaiters = 20*time.Second, 200
	}))
}

// A hundred equal calls have one effect, and every success that a client sees is that one's.
func TestAHundredAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(*testing.T) httpadapter.Runner
		busy bool
	}{
		"waiting": {run: waiting},
		"in flight": {busy: true, run: func(t *testing.T) httpadapter.Runner {
			return newClaimed(t, newDeduper(t, nil))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var arrived sync.WaitGroup
			arrived.Add(100)
			scope := func(ctx context.Context, method string) (string, error) {
				arrived.Done()
				return byAccount(ctx, method)
			}
			next := counted()
			s := newServiceOver(t, c.run(t), scope, grpcadapter.Config{},
				func(ctx context.Context, req *wrapperspb.StringValue) (any, error) {
					arrived.Wait()
					return next(ctx, req)
				})
			var wg sync.WaitGroup
			var first atomic.Int64
			for range 100 {
				wg.Go(func() {
					r := s.call(t.Context(), charge, "k", "v")
					switch {
					case r.err == nil && r.value == "v-1":
						if !r.replayed() {
							first.Add(1)
						}
					case c.busy && status.Code(r.err) == codes.Aborted &&
						r.reason() == "IN_FLIGHT" && r.delay() > 0:
					default:
						assert.Fail(t, "an answer of neither kind", "%q, %v", r.value, r.err)
					}
				})
			}
			wg.Wait()
			s.wantRuns(t, 1)
			assert.EqualValues(t, 1, first.Load(), "calls that were told they were the first")
		})
	}
}

// leaver is a service whose first handler waits until [service.leave] has seen its client go, on
// both sides: the server's deadline may pass a moment before the client's, or after it.
func leaver(t *testing.T, cfg grpcadapter.Config, end handleFunc) *service {
	t.Helper()
	left := make(chan struct{})
	var s *service
	scope := func(ctx context.Context, method string) (string, error) {
		s.clients <- ctx
		return byAccount(ctx, method)
	}
	s = newServiceOver(t, waiting(t), scope,
		cfg, func(ctx context.Context, req *wrapperspb.StringValue) (any, error) {
			if s.runs.Load() == 1 {
				<-left
			}
			return end(ctx, req)
		})
	s.clients, s.left = make(chan context.Context, 10), left
	return s
}

// leave makes a call whose deadline passes while the handler runs. On a busy machine a short one
// may pass before that.
func (s *service) leave(t *testing.T) (r *reply) {
	t.Helper()
	for limit := 50 * time.Millisecond; s.runs.Load() == 0; limit *= 4 {
		require.LessOrEqual(t, limit, time.Minute, "the handler is not run")
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		r = s.call(ctx, charge, "k", "v")
		cancel()
	}
	for len(s.clients) > 0 { // of the call that runs, and of those that left before they ran
		<-(<-s.clients).Done()
	}
	close(s.left)
	return r
}

// The client's deadline passes while the handler runs: its retry gets the response.
func TestTheHandlerOutlivesItsClient(t *testing.T) {
	next := counted()
	s := leaver(t, grpcadapter.Config{},
		func(ctx context.Context, req *wrapperspb.StringValue) (any, error) {
			left, _ := ctx.Deadline()
			assert.NoError(t, ctx.Err())
			assert.Greater(t, time.Until(left), 30*time.Second, "the deadline is its client's")
			return next(ctx, req)
		})
	assert.Equal(t, codes.DeadlineExceeded, status.Code(s.leave(t).err))
	wantValue(t, s.call(t.Context(), charge, "k", "v"), "v-1", true)
	s.wantRuns(t, 1)
}

func TestCancelWithClient(t *testing.T) {
	next := counted()
	var s *service
	s = leaver(t, grpcadapter.Config{CancelWithClient: true},
		func(ctx context.Context, req *wrapperspb.StringValue) (any, error) {
			if s.runs.Load() == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return next(ctx, req)
		})
	s.leave(t)
	wantValue(t, s.call(t.Context(), charge, "k", "v"), "v-1", false)
	s.wantRuns(t, 2)
}

// With CancelWithClient the handler's context has the client's deadline, too, for the calls that
// the handler makes. Timeout bounds both.
func TestCancelWithClientHasItsDeadline(t *testing.T) {
	var left time.Duration
	s := newService(t, grpcadapter.Config{CancelWithClient: true, Timeout: time.Hour},
		func(ctx context.Context, req *wrapperspb.StringValue) (any, error) {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return req, nil
		})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	s.call(ctx, charge, "1", "v")
	assert.Positive(t, left)
	assert.LessOrEqual(t, left, 30*time.Minute)
	s.call(t.Context(), charge, "2", "v")
	assert.Greater(t, left, 30*time.Minute)
	assert.LessOrEqual(t, left, time.Hour)
}

// An error of a handler whose time is up is not an answer, whatever its code; a response is one.
func TestTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		resp any
		err  error
	}{
		"its context's error":    {err: context.DeadlineExceeded},
		"a code that is kept":    {err: status.Error(codes.AlreadyExists, "no")},
		"a code that is not":     {err: status.Error(codes.NotFound, "no")},
		"a response is response": {resp: wrapperspb.String("done")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, grpcadapter.Config{Timeout: time.Millisecond},
				func(ctx context.Context, _ *wrapperspb.StringValue) (any, error) {
					<-ctx.Done()
					return c.resp, c.err
				})
			for _, replayed := range []bool{false, true} {
				r := s.call(t.Context(), charge, "k", "v")
				if c.err == nil {
					wantValue(t, r, "done", replayed)
				} else {
					wantOwn(t, r, codes.Unavailable, "CANCELLED", time.Second, "1000")
				}
			}
			s.wantRuns(t, map[bool]int64{true: 1, false: 2}[c.err == nil])
		})
	}
}

func TestPanicsReleaseAndGoOn(t *testing.T) {
	next := counted()
	var s *service
	s = newService(t, grpcadapter.Config{},
		func(ctx context.Context, req *wrapperspb.StringValue) (any, error) {
			if s.runs.Load() == 1 {
				panic("boom")
			}
			return next(ctx, req)
		})
	assert.Equal(t, "panic: boom",
		status.Convert(s.call(t.Context(), charge, "k", "v").err).Message())
	wantValue(t, s.call(t.Context(), charge, "k", "v"), "v-1", false)
	wantValue(t, s.call(t.Context(), charge, "k", "v"), "v-1", true)
}

// MarkIrreversible leaves a key uncertain when its attempt fails, unless nothing had begun.
func TestMarkIrreversibleAndForgo(t *testing.T) {
	forgo := false
	s := newService(t, grpcadapter.Config{},
		func(ctx context.Context, req *wrapperspb.StringValue) (any, error) {
			assert.NoError(t, dedup.MarkIrreversible(ctx))
			if forgo {
				assert.True(t, grpcadapter.Forgo(ctx), "this is a handler's context")
			}
			if req.GetValue() == "ok" {
				return req, nil
			}
			return nil, status.Error(codes.AlreadyExists, req.GetValue())
		})
	s.call(t.Context(), charge, "kept", "v")
	assert.True(t, s.call(t.Context(), charge, "kept", "v").replayed())
	forgo = true
	for range 2 { // not kept, and not uncertain
		r := s.call(t.Context(), charge, "forgone", "v")
		assert.False(t, r.replayed())
		assert.Equal(t, codes.AlreadyExists, status.Code(r.err))
	}
	wantValue(t, s.call(t.Context(), charge, "success", "ok"), "ok", false)
	wantValue(t, s.call(t.Context(), charge, "success", "ok"), "ok", true)
	assert.False(t, grpcadapter.Forgo(t.Context()), "a context of nobody's")
}

func TestUncertainAfterMarkIrreversible(t *testing.T) {
	s := newService(t, grpcadapter.Config{},
		func(ctx context.Context, _ *wrapperspb.StringValue) (any, error) {
			assert.NoError(t, dedup.MarkIrreversible(ctx))
			return nil, status.Error(codes.Unavailable, "the bank does not answer")
		})
	r := s.call(t.Context(), charge, "k", "v")
	assert.Equal(t, codes.Unavailable, status.Code(r.err))
	assert.Empty(t, r.reason())
	wantOwn(t, s.call(t.Context(), charge, "k", "v"), codes.Aborted, "UNCERTAIN",
		30*time.Second, "30000")
	s.wantRuns(t, 1)
}

// A handler may return an error of package dedup, about a key of its own. It is not special.
func TestAHandlersErrorIsItsOwn(t *testing.T) {
	for _, own := range []error{dedup.ErrInFlight, dedup.ErrLeaseLost, dedup.ErrMismatch,
		dedup.ErrNoResult, &dedup.FailedError{}} {
		s := newService(t, grpcadapter.Config{},
			func(context.Context, *wrapperspb.StringValue) (any, error) { return nil, own })
		for range 2 {
			r := s.call(t.Context(), charge, "k", "v")
			assert.Equal(t, codes.Unknown, status.Code(r.err), own)
			assert.Empty(t, r.reason(), own)
		}
		s.wantRuns(t, 2)
	}
}

// A Runner of SQL may run the handler again. Each run gets the request as it arrived. Only an error
// asks the Runner to undo what the handler has done.
func TestEveryRunGetsTheRequestAsItCame(t *testing.T) {
	var undone []bool
	run := &fake{limit: 1 << 20,
		do: func(ctx context.Context, effect httpadapter.Effect) (dedup.Result[[]byte], error) {
			_, _, _ = effect(ctx)
			result, undo, err := effect(ctx)
			undone = append(undone, undo)
			return dedup.Result[[]byte]{Value: result, Outcome: dedup.Acquired}, err
		}}
	s := newServiceOver(t, run, byAccount, grpcadapter.Config{},
		func(_ context.Context, req *wrapperspb.StringValue) (any, error) {
			req.Value += "!"
			if req.GetValue() == "bad!" {
				return nil, status.Error(codes.InvalidArgument, "bad")
			}
			return req, nil
		})
	wantValue(t, s.call(t.Context(), charge, "1", "v"), "v!", false)
	assert.Equal(t, codes.InvalidArgument,
		status.Code(s.call(t.Context(), charge, "2", "bad").err))
	assert.Equal(t, []bool{false, true}, undone)
}

// Headers and trailers that a handler sets are not replayed.
func TestHeadersAreNotReplayed(t *testing.T) {
	s := newService(t, grpcadapter.Config{},
		func(ctx context.Context, req *wrapperspb.StringValue) (any, error) {
			return req, errors.Join(grpc.SetHeader(ctx, metadata.Pairs("session", "secret")),
				grpc.SetTrailer(ctx, metadata.Pairs("cost", "5")))
		})
	first, again := s.call(t.Context(), charge, "k", "v"), s.call(t.Context(), charge, "k", "v")
	wantValue(t, first, "v", false)
	wantValue(t, again, "v", true)
	assert.Len(t, first.header["session"], 1)
	assert.Len(t, first.trailer["cost"], 1)
	assert.Empty(t, again.header["session"])
	assert.Empty(t, again.trailer["cost"])
}

// When a Runner runs the handler again, header and trailer have nothing of the earlier run. They
// have nothing of a run that the Runner fails to record.
func TestARerunSetsItsHeadersOnce(t *testing.T) {
	handle := func(ctx context.Context, req *wrapperspb.StringValue) (any, error) {
		err := errors.Join(grpc.SetHeader(ctx, metadata.Pairs("session", req.GetValue())),
			grpc.SetTrailer(ctx, metadata.Pairs("cost", "5")))
		if req.GetValue() == "sent" {
			err = errors.Join(err, grpc.SendHeader(ctx, metadata.Pairs("session", "too")))
		}
		if req.GetValue() == "bad" {
			return nil, status.Error(codes.NotFound, "bad")
		}
		return req, err
	}
	for value, row := range map[string]struct {
		runs, header, trailer int
		lost                  error
	}{"v": {2, 1, 1, nil}, "bad": {2, 1, 1, nil}, "sent": {1, 2, 1, nil},
		"lost": {2, 0, 0, errors.New("database is down")}} {
		t.Run(value, func(t *testing.T) {
			run := &fake{limit: 1 << 20, atomic: true,
				do: func(ctx context.Context, effect httpadapter.Effect) (dedup.Result[[]byte],
					error) {
					for range row.runs - 1 {
						_, _, _ = effect(ctx)
					}
					result, _, err := effect(ctx)
					return dedup.Result[[]byte]{Value: result, Outcome: dedup.Acquired},
						errors.Join(err, row.lost)
				}}
			s := newServiceOver(t, run, byAccount, grpcadapter.Config{}, handle)
			r := s.call(t.Context(), charge, "k", value)
			assert.Len(t, r.header["session"], row.header)
			assert.Len(t, r.trailer["cost"], row.trailer)
		})
	}
}

// Streams cannot be replayed: a client that sends a key with a stream gets an error.
func TestKeyedStreamsAreRefused(t *testing.T) {
	opened := 0
	server := grpc.NewServer(grpc.ChainStreamInterceptor(grpcadapter.RefuseKeyedStreams),
		grpc.WaitForHandlers(true))
	desc := &grpc.ServiceDesc{ServiceName: "pay.Pay", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Watch", ServerStreams: true, ClientStreams: true,
			Handler: func(any, grpc.ServerStream) error { opened++; return nil },
		}}}
	server.RegisterService(desc, nil)
	conn := serve(t, server)
	watch := func(md ...string) *reply {
		r := &reply{}
		stream, err := conn.NewStream(metadata.AppendToOutgoingContext(t.Context(), md...),
			&desc.Streams[0], "/pay.Pay/Watch")
		require.NoError(t, err)
		if r.err = stream.RecvMsg(new(wrapperspb.StringValue)); errors.Is(r.err, io.EOF) {
			r.err = nil
		}
		r.trailer = stream.Trailer()
		return r
	}
	assert.NoError(t, watch().err)
	assert.Equal(t, 1, opened)
	wantOwn(t, watch(grpcadapter.KeyMetadata, "k"), codes.Unimplemented, "NOT_SUPPORTED", 0, "-1")
	assert.Equal(t, 1, opened, "the stream was opened")
}

// The log has a warning when a key is freed because its handler had no answer at the end of
// Timeout.
func TestSilenceIsLogged(t *testing.T) {
	var log bytes.Buffer
	cfg := grpcadapter.Config{Timeout: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&log, nil))}
	s := newService(t, cfg, func(ctx context.Context, _ *wrapperspb.StringValue) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	s.call(t.Context(), charge, "secret", "v")
	for _, want := range []string{"level=WARN", "timeout=1ms", charge} {
		assert.Contains(t, log.String(), want)
	}
	assert.NotContains(t, log.String(), "secret")
}

// retrying is a client that follows a retryPolicy.
func retrying() grpc.DialOption {
	return grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{"service": "pay.Pay"}], "retryPolicy": {
		"maxAttempts": 4, "initialBackoff": "0.001s",
		"maxBackoff": "0.001s", "backoffMultiplier": 1,
		"retryableStatusCodes": ["UNAVAILABLE", "ABORTED", "DATA_LOSS"]}}]}`)
}

// Retries of gRPC itself carry the key, and happen only where a retry helps.
func TestRetryPolicy(t *testing.T) {
	next := counted()
	var s *service
	s = newService(t, grpcadapter.Config{},
		func(ctx context.Context, req *wrapperspb.StringValue) (any, error) {
			if s.runs.Load() < 3 {
				return nil, status.Error(codes.Unavailable, "not yet")
			}
			return next(ctx, req)
		}, retrying())
	wantValue(t, s.call(t.Context(), charge, "k", "v"), "v-1", false)
	s.wantRuns(t, 3)

	for name, c := range map[string]struct {
		err      error
		attempts int64
	}{
		"in flight": {dedup.ErrInFlight, 4},
		"done":      {dedup.ErrNoResult, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var attempts atomic.Int64
			scope := func(context.Context, string) (string, error) {
				attempts.Add(1)
				return "acme", nil
			}
			s := newServiceOver(t, answering(dedup.Result[[]byte]{}, c.err), scope,
				grpcadapter.Config{RetryAfter: time.Millisecond}, counted(), retrying())
			assert.Error(t, s.call(t.Context(), charge, "k", "v").err)
			assert.Equal(t, c.attempts, attempts.Load())
		})
	}
}
