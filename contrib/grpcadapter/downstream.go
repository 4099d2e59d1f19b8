package grpcadapter

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/onceward/onceward/dedup"
)

// purposeOption is the option that names a call.
type purposeOption struct {
	grpc.EmptyCallOption
	purpose []string
}

// Purpose names the call that a handler makes: with [UnaryClientInterceptor] it carries the
// DownstreamKey of the running attempt for this purpose. Give each call of a handler a purpose of
// its own, and the same one in every attempt: two calls with the same purpose have the same key, so
// the service answers the second with the result of the first. Without the interceptor the option
// does nothing.
func Purpose(purpose ...string) grpc.CallOption { return purposeOption{purpose: purpose} }

// UnaryClientInterceptor returns an interceptor that sends [dedup.Attempt].DownstreamKey as the
// metadata idempotency-key ([KeyMetadata]) of each call that has a [Purpose]. A handler that is run
// again, because its process died, sends the same key again, and the service has the effect once.
//
// A call without a Purpose passes as it is, and so does one that already has the metadata. A call
// with a Purpose whose context does not come from an attempt is refused with an
// [*dedup.InputError]: without a key its effect could happen twice.
func UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, err := withKey(ctx, method, opts)
		if err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	}
}

// withKey adds the key of the last purpose in opts.
func withKey(ctx context.Context, method string, opts []grpc.CallOption) (context.Context, error) {
	var named *purposeOption
	for _, opt := range opts {
		if s, ok := opt.(purposeOption); ok {
			named = &s
		}
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	if named == nil || len(md.Get(KeyMetadata)) > 0 {
		return ctx, nil
	}
	attempt, ok := dedup.FromContext(ctx)
	if !ok {
		return nil, &dedup.InputError{Field: "grpcadapter.Purpose", Reason: fmt.Sprintf(
			"names the purpose %q of %s outside of an attempt: use the context of the handler",
			named.purpose, method)}
	}
	return metadata.AppendToOutgoingContext(ctx, KeyMetadata,
		attempt.DownstreamKey(named.purpose...)), nil
}
