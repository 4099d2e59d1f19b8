// Package grpcadapter makes a unary call of gRPC that arrives twice have its effect once: a
// server interceptor for the metadata idempotency-key, over the same [httpadapter.Runner]
// as the middleware for HTTP.
//
//	run, err := httpadapter.Claimed(d)
//	...
//	// account is a Scope
//	once, err := grpcadapter.UnaryServerInterceptor(run, account, grpcadapter.Config{})
//	...
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, once))
//
// The first call with a key runs its handler, and its response, or an error with a code that is
// kept, is recorded before it leaves. A retry with the key gets that, or Aborted while the first
// call still runs. When the store cannot say whether a call is new, or cannot record its response,
// the client gets Unavailable: a success that is not on record is never reported. Keys belong to a
// principal and a full method.
//
// A client that retries sends the metadata again; a retryPolicy in a service config does so by
// itself. The page docs/reference/grpc.md of the repository says what is answered when. Streams are
// not intercepted: a key on one does nothing, unless [RefuseKeyedStreams] refuses it.
package grpcadapter
