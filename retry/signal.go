package retry

import (
	"context"
	"net/http"
	"strings"
)

// SignalHeader in a request says that a layer above retries already. In a response it says that the
// request must not be sent again.
const SignalHeader = "Do-Not-Retry"

type noRetry struct{}

// NoRetry returns a context under which [Do] and [Transport] try once, because a layer above
// retries. [Do] and [Transport] pass on such contexts themselves, so that the attempts of layers do
// not multiply. A layer below cannot undo it.
//
// They still wait for an answer in flight ([Wait]). Waits do not multiply, because while one layer
// waits, the layers above wait for that layer, so only one of them asks at a time.
func NoRetry(ctx context.Context) context.Context {
	return context.WithValue(ctx, noRetry{}, true)
}

// Allowed reports whether ctx allows retries, which means that it does not carry [NoRetry].
func Allowed(ctx context.Context) bool { return ctx.Value(noRetry{}) == nil }

// Handler puts [NoRetry] into the context of requests that say Do-Not-Retry, and passes all
// requests to next. A handler passes r.Context() to its own calls, which then try once: its caller
// retries.
//
// Trust reports whether the header of a request counts. If trust is nil, it always counts. An
// untrusted client can do no harm with the header, because it can only lower the number of retries
// for its own request. Any value counts except an empty one, "0" and "?0".
//
// Handler does not change responses. When a service that a handler calls answers with Do-Not-Retry,
// the handler may set the header on its own response to stop its caller too: only it knows whether
// the refusal was about this request. It is safe for concurrent use if next and trust are.
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

// lines returns the values of a field in any spelling, because code that writes into the map of a
// header may spell the name as HTTP/2 does.
func lines(h http.Header, name string) []string {
	values := h[name]
	for spelling, more := range h {
		if spelling != name && strings.EqualFold(spelling, name) {
			values = append(values[:len(values):len(values)], more...)
		}
	}
	return values
}

// set replaces a field, whatever spelling its name has.
func set(h http.Header, name, value string) {
	for spelling := range h {
		if strings.EqualFold(spelling, name) {
			delete(h, spelling)
		}
	}
	h[name] = []string{value}
}
