package retry

import (
	"context"
	"net/http"
	"strings"
)

// SignalHeader says in a request that a layer above retries already, and in a response that the
// request is not to be sent again.
const SignalHeader = "Do-Not-Retry"

type noRetry struct{}

// NoRetry returns a context under which [Do] and [Transport] try once: somebody above retries. [Do]
// and [Transport] pass on such contexts themselves, so that layers do not multiply. It cannot be undone
// below.
func NoRetry(ctx context.Context) context.Context {
	return context.WithValue(ctx, noRetry{}, true)
}

// Allowed reports whether ctx allows retries: it does not carry [NoRetry].
func Allowed(ctx context.Context) bool { return ctx.Value(noRetry{}) == nil }

// Handler puts [NoRetry] into the context of requests that say Do-Not-Retry, and hands all requests
// on. Handlers pass r.Context() to what they call, and that tries once: the caller tries again.
//
// Trust says whose header counts; nil: everybody's. An untrusted client does no harm with it: all
// it can do is to lower the number of retries made for its own request. Any value counts but an
// empty one, "0" and "?0".
//
// Responses are not touched. A handler that wants its own caller to stop as well, because what it called
// answered with Do-Not-Retry, sets the header on its own response: only it knows whether the refusal
// was about this request. It is safe for concurrent use if
// next and trust are.
func Handler(next http.Handler, trust func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if signalled(r.Header) && (trust == nil || trust(r)) {
			r = r.WithContext(NoRetry(r.Context()))
		}
		next.ServeHTTP(w, r)
	})
}

func signalled(h http.Header) bool {
	for _, v := range h.Values(SignalHeader) {
		switch strings.TrimSpace(v) {
		case "", "0", "?0":
		default:
			return true
		}
	}
	return false
}
