package httpadapter

import (
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/onceward/onceward/dedup"
)

const (
	replayedHeader = "Idempotent-Replayed"
	windowHeader   = "Idempotency-Window"
)

// DefaultHeaders returns the names of the response headers that are kept and replayed if the
// handler has set them.
func DefaultHeaders() []string {
	return []string{
		"Content-Type", "Content-Language", "Content-Encoding", "Content-Disposition", "Location",
		"Etag", "Last-Modified", "Link", "Vary", "Retry-After", "Cache-Control",
	}
}

// GRPCWebHeaders returns the names of the response headers that a gRPC-Web client needs in
// addition to [DefaultHeaders]. Put them into Config.Headers in front of a server such as
// connect-go's, because without them the client takes each replay for a protocol error.
// connect-go's own protocol needs none of them, and gRPC itself has trailers, which are not kept.
//
// gRPC-Web answers a failure with status 200. So Config.Keep and Forgo see a success, the effect of
// a failed call is not undone, and the failure is final. If you do not want that, let clients that
// use keys speak the Connect protocol, or put the handlers behind package grpcadapter, which sees
// the code of a failure.
func GRPCWebHeaders() []string {
	return []string{"Grpc-Encoding", "Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin"}
}

// denied headers are never stored and never replayed, because they concern one client, one
// connection or one moment.
var denied = nameSet(
	"Set-Cookie", "Set-Cookie2", "Authorization", "Proxy-Authorization", "WWW-Authenticate",
	"Proxy-Authenticate",
	"Authentication-Info", "Proxy-Authentication-Info", "Clear-Site-Data", "Connection",
	"Keep-Alive",
	"Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Date", "Content-Length",
	"Age", replayedHeader, windowHeader,
)

func nameSet(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[http.CanonicalHeaderKey(name)] = true
	}
	return set
}

// keptHeaders is the set of the headers that are kept.
func keptHeaders(more []string) (map[string]bool, error) {
	set := nameSet(DefaultHeaders()...)
	for _, name := range more {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !validName(name):
			return nil, &dedup.InputError{Field: "httpadapter.Config.Headers",
				Reason: fmt.Sprintf("has %q, which is not a header", name)}
		case denied[canonical]:
			return nil, &dedup.InputError{Field: "httpadapter.Config.Headers",
				Reason: "has " + canonical + ", which is never replayed"}
		}
		set[canonical] = true
	}
	return set, nil
}

// validName reports whether name is a token of RFC 9110.
func validName(name string) bool {
	_, bad := span(name, tchars)
	return name != "" && bad == ""
}

// mayReplay reports whether a header of a record is replayed. The record may come from an older
// configuration, or from another writer.
func (m *Middleware) mayReplay(name string) bool {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	return m.headers[canonical] && !denied[canonical]
}

// storedHeaders returns the headers of an answer that are stored: those that may be kept, if the
// handler has set or changed them. Headers that outer middleware has set are left out, because it
// sets them again for the request that gets the replay.
func storedHeaders(names map[string]bool, before, sent http.Header) map[string][]string {
	out := map[string][]string{}
	for name, values := range sent {
		canonical := http.CanonicalHeaderKey(name)
		if !names[canonical] || denied[canonical] {
			continue
		}
		if had, ok := before[name]; ok && slices.Equal(had, values) {
			continue
		}
		out[canonical] = append(out[canonical], values...)
	}
	return out
}

// replace sets the headers of w to the headers that the handler has left, except trailers and
// Transfer-Encoding, because net/http frames the answer.
func replace(w http.ResponseWriter, sent http.Header) {
	h := w.Header()
	clear(h)
	maps.Copy(h, sent)
	for name := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			delete(h, name)
		}
	}
	h.Del("Trailer")
	h.Del("Transfer-Encoding")
}
