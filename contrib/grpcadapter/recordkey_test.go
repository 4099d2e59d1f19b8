package grpcadapter_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceward/onceward/contrib/grpcadapter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// An operator who knows the call finds its record; the client's error and the log name it.
func TestRecordIsFoundFromACall(t *testing.T) {
	store, log := dedup.Memory(100), new(bytes.Buffer)
	d, err := dedup.New(store,
		dedup.Config{Namespace: "grpc", Window: time.Hour, LeaseTTL: time.Minute, Labels: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	cfg := grpcadapter.Config{Name: "v2", Logger: slog.New(slog.NewTextHandler(log, nil))}
	s := newServiceOver(t, newClaimed(t, d), byAccount,
		cfg, func(ctx context.Context, _ *wrapperspb.StringValue) (any, error) {
			assert.NoError(t, dedup.MarkIrreversible(ctx))
			return nil, errors.New("the gateway is gone")
		})
	s.call(t.Context(), charge, "k1", "10 EUR")
	reply := s.call(t.Context(), charge, "k1", "10 EUR")

	id, err := grpcadapter.RecordKey{Name: "v2", Principal: "acme", FullMethod: charge,
		Key: "k1"}.ID("grpc")
	require.NoError(t, err)
	rec := store.Lookup(t.Context(), []driver.ID{id})[0].Record
	assert.Equal(t, driver.StateUncertain, rec.State)
	assert.Equal(t, charge+" k1", rec.Label)
	var named string
	for _, detail := range status.Convert(reply.err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			assert.Equal(t, "UNCERTAIN", info.GetReason())
			named = info.GetMetadata()["key_id"]
		}
	}
	assert.Equal(t, hex.EncodeToString(id[:]), named)
	assert.Contains(t, log.String(), "key_id="+named)
}
