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
// and [Transport] pass on such contexts themselves, so that layers do not multiply. It cannot be
// undone below.
//
// What is in flight ([Wait]) is waited for all the same. A wait multiplies nothing: while one layer
// waits, those above it wait for that layer, so that one of them asks at a time.
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
// Responses are not touched. A handler that wants its own caller to stop as well, because what it
// called answered with Do-Not-Retry, sets the header on its own response: only it knows whether the
// refusal was about this request. It is safe for concurrent use if next and trust are.
func Handler(next http.Handler, trust func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if signalled(r.Header) && (trust == nil || trust(r)) {
			r = r.WithContext(NoRetry(r.Context()))
		}
		next.ServeHTTP(w, r)
	})
}

func signalled(h http.Header) bool {
	for _, v := range lines(h, SignalHeader) {
		switch strings.TrimSpace(v) {
		case "", "0", "?0":
		default:
			return true
		}
	}
	return false
}

// lines are the values of a field in any spelling: who writes into the map of a header may write
// its name as HTTP/2 does.
func lines(h http.Header, name string) []string {
	values := h[name]
	for spelling, more := range h {
		if spelling != name && strings.EqualFold(spelling, name) {
			values = append(values[:len(values):len(values)], more...)
		}
	}
	return values
}

// set replaces a field, in whatever spelling it is there.
func set(h http.Header, name, value string) {
	for spelling := range h {
		if strings.EqualFold(spelling, name) {
			delete(h, spelling)
		}
	}
	h[name] = []string{value}
}
