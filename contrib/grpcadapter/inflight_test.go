package grpcadapter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onceward/onceward/contrib/grpcadapter"
)

// S-7: an account that sends new keys without end holds MaxInFlight claims, and the others go on.
// A place is free again when its call ends, even if the handler panics.
func TestS07OneAccountCannotHoldAllClaims(t *testing.T) {
	const most = 2
	running, release := make(chan struct{}), make(chan struct{})
	s := newService(t, grpcadapter.Config{MaxInFlight: most},
		func(_ context.Context, req *wrapperspb.StringValue) (any, error) {
			switch req.GetValue() {
			case "wait":
				running <- struct{}{}
				<-release
			case "panic":
				panic("bad")
			}
			return req, nil
		})
	replies := make(chan *reply, most)
	for i := range most {
		go func() { replies <- s.call(t.Context(), charge, fmt.Sprint("held-", i), "wait") }()
		<-running
	}
	for i := range 20 {
		wantOwn(t, s.call(t.Context(), charge, fmt.Sprint("more-", i), "v"),
			codes.ResourceExhausted, "TOO_MANY_IN_FLIGHT", time.Second, "1000")
	}
	s.wantRuns(t, most)
	wantValue(t, s.send(t.Context(), charge, "v", "account", "other", grpcadapter.KeyMetadata, "k"),
		"v", false)
	close(release)
	for range most {
		wantValue(t, <-replies, "wait", false)
	}
	for range 2 * most {
		s.call(t.Context(), charge, "p", "panic")
	}
	// nothing was claimed of what was refused
	wantValue(t, s.call(t.Context(), charge, "more-0", "v"), "v", false)
}
