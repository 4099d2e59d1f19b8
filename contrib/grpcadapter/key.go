package grpcadapter

import (
	"context"
	"errors"

	"google.golang.org/grpc/metadata"
)

// Names of the metadata.
const (
	// KeyMetadata carries the key of a call: one value of 1-255 bytes of visible ASCII without
	// commas, because a proxy may join two values with a comma.
	KeyMetadata = "idempotency-key"
	// ReplayedMetadata is "true" in the header of a response, or an error, that is replayed.
	ReplayedMetadata = "idempotent-replayed"
	// WindowMetadata says in the trailer of a call with a key for how many seconds the key
	// is remembered. A header would end the retries of the client's retryPolicy.
	WindowMetadata = "idempotency-window"
)

const maxKeyBytes = 255

// Scope returns the principal of a call: the account to which its key belongs, as the
// authentication has found it. Calls of two principals with the same key are two calls. An empty
// principal is answered with Unauthenticated, an error with Unavailable. The principal must not
// come from what a client can choose freely.
type Scope func(ctx context.Context, fullMethod string) (principal string, err error)

var errUnscoped = errors.New("grpcadapter: unscoped")

// Unscoped is the [Scope] of a service that has one client, or whose keys are secret and cannot be
// guessed: everybody who sends the same key and method gets the same response. A Scope may call
// Unscoped and return its results, but only for such methods.
func Unscoped(context.Context, string) (string, error) { return "", errUnscoped }

// scope is the scope of a key, as [RecordKey] has it.
func (i *interceptor) scope(principal, fullMethod string) string {
	return RecordKey{Name: i.cfg.Name, Principal: principal, FullMethod: fullMethod}.Scope()
}

// keys returns the values of the metadata idempotency-key.
func keys(ctx context.Context) []string {
	return metadata.ValueFromIncomingContext(ctx, KeyMetadata)
}

// previousAttempts is the metadata that only gRPC's own retries and hedges set: how often they have
// sent the call before (gRFC A6).
const previousAttempts = "grpc-previous-rpc-attempts"

// marked reports whether the call says that it is a retry.
func marked(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, previousAttempts)) > 0
}

// parseKey returns the key, or what is wrong: reason completes the sentence that begins with "The
// metadata idempotency-key".
func parseKey(values []string) (key, reason string) {
	if len(values) != 1 {
		return "", "is there more than once"
	}
	key = values[0]
	switch {
	case key == "":
		return "", "is empty"
	case len(key) > maxKeyBytes:
		return "", "is longer than 255 bytes"
	}
	for i := range len(key) {
		if c := key[i]; c <= ' ' || c > '~' || c == ',' {
			return "", "is not visible ASCII without commas"
		}
	}
	return key, ""
}
