package httpadapter

import (
	"context"
	"fmt"
	"net/http"

	"github.com/onceward/onceward/dedup"
)

// purposeKey is the key of a purpose in a context.
type purposeKey struct{}

// WithPurpose names the call that a handler makes next: the request that a [Transport] sends with
// the returned context carries the DownstreamKey of the running attempt for this purpose. Give each
// call of a handler a purpose of its own, and the same one in every attempt: two calls with the
// same purpose have the same key, so the service answers the second with the result of the first.
// Use the context for one call. A retry of that call keeps the context, and so the key.
func WithPurpose(ctx context.Context, purpose ...string) context.Context {
	return context.WithValue(ctx, purposeKey{}, purpose)
}

// Transport is a [http.RoundTripper] that sends [dedup.Attempt].DownstreamKey as the
// Idempotency-Key of each request whose context has a purpose ([WithPurpose]). A handler that is
// run again, because its process died, sends the same key again, and the service has the effect
// once.
//
// A request without a purpose passes as it is, and so does one that already has the header. A
// request with a purpose whose context does not come from an attempt is refused with an
// [*dedup.InputError]: without a key its effect could happen twice.
type Transport struct {
	// Base sends the requests. Default: [http.DefaultTransport]. A Transport that retries, such as
	// that of package retry, may be around this one or inside it: the key is the same.
	Base http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	purpose, named := req.Context().Value(purposeKey{}).([]string)
	if _, set := req.Header[KeyHeader]; !named || set {
		return base.RoundTrip(req)
	}
	attempt, ok := dedup.FromContext(req.Context())
	if !ok {
		if req.Body != nil {
			_ = req.Body.Close() // as RoundTripper says, also on errors
		}
		return nil, &dedup.InputError{Field: "httpadapter.WithPurpose", Reason: fmt.Sprintf(
			"names the purpose %q of %s %s outside of an attempt: use the context of the handler",
			purpose, req.Method, req.URL.Redacted())}
	}
	keyed := req.Clone(req.Context())
	if keyed.Header == nil {
		keyed.Header = http.Header{}
	}
	keyed.Header.Set(KeyHeader, attempt.DownstreamKey(purpose...))
	return base.RoundTrip(keyed)
}
