package grpcadapter

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

var streamKeyed = answer{"NOT_SUPPORTED", codes.Unimplemented,
	"a stream has no use for the metadata " + KeyMetadata + ": nothing of it is kept", true}

// RefuseKeyedStreams is a [grpc.StreamServerInterceptor] that refuses, with Unimplemented, a stream
// that has the metadata idempotency-key, because nothing here records what a stream does. Without
// it the key is ignored, and each retry has the effect again. Streams without a key, and those of
// grpc.health, grpc.reflection and grpc.channelz, pass.
func RefuseKeyedStreams(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	if len(keys(ss.Context())) == 0 || defaultMethods(info.FullMethod) == Unkeyed {
		return handler(srv, ss)
	}
	ss.SetTrailer(metadata.Pairs(pushback, "-1"))
	return streamKeyed.err("")
}

// metadataBuffer keeps the headers and trailers that a handler sets until it is known whether its
// run counts.
// Otherwise a Runner that runs the handler again would send them twice.
type metadataBuffer struct {
	grpc.ServerTransportStream

	mu              sync.Mutex
	header, trailer metadata.MD
	sent            bool
}

// bufferMetadata puts a metadataBuffer into ctx, unless ctx has no stream.
func bufferMetadata(ctx context.Context) (context.Context, *metadataBuffer) {
	stream := grpc.ServerTransportStreamFromContext(ctx)
	if stream == nil {
		return ctx, nil
	}
	b := &metadataBuffer{ServerTransportStream: stream}
	return grpc.NewContextWithServerTransportStream(ctx, b), b
}

// SetHeader implements [grpc.ServerTransportStream].
func (b *metadataBuffer) SetHeader(md metadata.MD) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent {
		return b.ServerTransportStream.SetHeader(md) // it returns the error that it is too late
	}
	b.header = metadata.Join(b.header, md)
	return nil
}

// SendHeader implements [grpc.ServerTransportStream]. It sends the header at once.
func (b *metadataBuffer) SendHeader(md metadata.MD) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	md, b.header, b.sent = metadata.Join(b.header, md), nil, true
	return b.ServerTransportStream.SendHeader(md)
}

// SetTrailer implements [grpc.ServerTransportStream].
func (b *metadataBuffer) SetTrailer(md metadata.MD) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trailer = metadata.Join(b.trailer, md)
	return nil
}

// pass sets the headers and trailers that were kept on the stream. It ignores errors, because
// setting fails only if nobody would read them.
func (b *metadataBuffer) pass() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.ServerTransportStream.SetHeader(b.header)
	_ = b.ServerTransportStream.SetTrailer(b.trailer)
	b.header, b.trailer = nil, nil
}
