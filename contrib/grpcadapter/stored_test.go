package grpcadapter_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceward/onceward/contrib/grpcadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/encrypted"
)

// Whatever is in the store, the answer is a replay or DataLoss. It is never a panic, an empty
// success, or a success where an error was stored.
func FuzzReplay(f *testing.F) {
	header := map[string][]string{"type-url": {"type.googleapis.com/google.protobuf.StringValue"}}
	f.Add(encrypted.Encode(&encrypted.Response{Header: header, Body: []byte("\x0a\x04paid")}))
	f.Add(encrypted.Encode(&encrypted.Response{Status: 6, Body: []byte("\x08\x06\x12\x05twice")}))
	f.Add(encrypted.Encode(&encrypted.Response{Tombstone: true, Status: 6}))
	f.Add(encrypted.Encode(&encrypted.Response{Status: 6})) // OK inside
	f.Add([]byte{0x81, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, stored []byte) {
		run := answering(dedup.Result[[]byte]{Outcome: dedup.Duplicate, Value: stored}, nil)
		once, err := grpcadapter.UnaryServerInterceptor(run, grpcadapter.Unscoped,
			grpcadapter.Config{})
		require.NoError(t, err)
		ctx := metadata.NewIncomingContext(t.Context(),
			metadata.Pairs(grpcadapter.KeyMetadata, "k"))
		resp, err := direct(t, ctx, charge, wrapperspb.String("v"), once)
		r, derr := encrypted.Decode(stored)
		switch {
		case err == nil:
			require.NoError(t, derr, "replayed as %v", resp)
			require.Implements(t, (*proto.Message)(nil), resp)
			assert.True(t, resp.(proto.Message).ProtoReflect().IsValid())
			assert.False(t, r.Tombstone)
			assert.Zero(t, r.Status)
		case grpcstatus.Code(err) == codes.DataLoss:
			assert.Nil(t, resp)
		default:
			assert.Nil(t, resp)
			require.NoError(t, derr, "answered with %v", err)
			assert.False(t, r.Tombstone)
			assert.Equal(t, r.Status, int(grpcstatus.Code(err)))
		}
	})
}

// Responses that look like nothing, or like an error, are responses.
func TestOddResponses(t *testing.T) {
	for name, resp := range map[string]proto.Message{
		"nil of a type": (*wrapperspb.StringValue)(nil),
		"empty":         &emptypb.Empty{},
		"a status":      &status.Status{Code: 6, Message: "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			once, err := grpcadapter.UnaryServerInterceptor(newClaimed(t, newDeduper(t, nil)),
				grpcadapter.Unscoped, grpcadapter.Config{})
			require.NoError(t, err)
			ctx := metadata.NewIncomingContext(t.Context(),
				metadata.Pairs(grpcadapter.KeyMetadata, "k"))
			for range 2 {
				got, err := once(ctx, wrapperspb.String("v"), infoOf(charge),
					func(context.Context, any) (any, error) { return resp, nil })
				require.NoError(t, err)
				require.Implements(t, (*proto.Message)(nil), got)
				m := got.(proto.Message)
				require.Equal(t, resp.ProtoReflect().Descriptor(), m.ProtoReflect().Descriptor())
				want, _ := proto.Marshal(resp)
				data, err := proto.Marshal(m)
				require.NoError(t, err)
				assert.Equal(t, string(want), string(data))
			}
		})
	}
}
