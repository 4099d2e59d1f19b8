package grpcadapter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceward/onceward/contrib/grpcadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
)

var errKilled = errors.New("the process is dead")

// pay calls a method of service B in the handler of service A.
func pay(ctx context.Context, b *service, method string, opts ...grpc.CallOption) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "account", "acme")
	return b.conn.Invoke(ctx, method, wrapperspb.String("5"), new(wrapperspb.StringValue), opts...)
}

func newDownstream(t *testing.T) *service {
	t.Helper()
	return newService(t, grpcadapter.Config{},
		func(context.Context, *wrapperspb.StringValue) (any, error) {
			return wrapperspb.String("paid"), nil
		}, grpc.WithUnaryInterceptor(grpcadapter.UnaryClientInterceptor()))
}

// The process of service A dies after service B has answered, and before A's record. The next one
// calls B again, and B has each effect once.
func TestCallsHaveTheirEffectOnceAlthoughTheCallerWasKilled(t *testing.T) {
	b, store := newDownstream(t), dedup.Memory(10)
	process := func(store dedup.Store) *dedup.Deduper {
		d, err := dedup.New(store, dedup.Config{Namespace: "a", Window: time.Hour,
			LeaseTTL: time.Second, Wait: time.Minute})
		require.NoError(t, err)
		return d
	}
	handler := func(ctx context.Context) (struct{}, error) {
		return struct{}{}, errors.Join(
			pay(ctx, b, charge, grpcadapter.Purpose("first")),
			pay(ctx, b, charge, grpcadapter.Purpose("second")),
			pay(ctx, b, refund, grpcadapter.Purpose("third")))
	}
	dying := deduptest.NewFaulty(store, nil)
	_, err := dedup.Do(t.Context(), process(dying), "order-1",
		func(ctx context.Context) (struct{}, error) {
			_, err := handler(ctx)
			require.NoError(t, err)
			dying.SetPlan(func(deduptest.Call) deduptest.Fault {
				return deduptest.Fault{Kind: deduptest.DropRequest}
			})
			return struct{}{}, errKilled
		})
	require.ErrorIs(t, err, errKilled)
	assert.Equal(t, int64(3), b.runs.Load(), "three purposes are three operations")
	_, err = dedup.Do(t.Context(), process(store), "order-1", handler)
	require.NoError(t, err)
	assert.Equal(t, int64(3), b.runs.Load())
}

func TestClientInterceptorKeepsToWhatTheCallerSays(t *testing.T) {
	var sent []string
	invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn,
		_ ...grpc.CallOption) error {
		md, _ := metadata.FromOutgoingContext(ctx)
		sent = append(sent, md.Get(grpcadapter.KeyMetadata)...)
		return nil
	}
	call := func(ctx context.Context, opts ...grpc.CallOption) error {
		return grpcadapter.UnaryClientInterceptor()(ctx, charge, nil, nil, nil, invoke, opts...)
	}
	key := ""
	_, err := dedup.Do(t.Context(), newDeduper(t, nil), "order-1",
		func(ctx context.Context) (struct{}, error) {
			attempt, _ := dedup.FromContext(ctx)
			key = attempt.DownstreamKey("bank", "charge")
			own := metadata.AppendToOutgoingContext(ctx, grpcadapter.KeyMetadata, "own")
			return struct{}{}, errors.Join(call(ctx),
				call(ctx, grpcadapter.Purpose("bank", "charge")),
				call(own, grpcadapter.Purpose("bank", "charge")))
		})
	require.NoError(t, err)
	assert.Equal(t, []string{key, "own"}, sent)

	var input *dedup.InputError
	require.ErrorAs(t, call(t.Context(), grpcadapter.Purpose("charge")), &input)
	assert.Equal(t, "grpcadapter.Purpose", input.Field)
	assert.Len(t, sent, 2, "a purpose outside of an attempt is not sent")
}
