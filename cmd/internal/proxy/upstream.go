package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// Headers that the service gets. Only the proxy sets them.
const (
	// keyHeader holds dedup.Attempt.DownstreamKey, which is the same in every attempt of one
	// operation.
	keyHeader = "Onceward-Key"
	// attemptHeader holds the number of the attempt. If that is above 1, an earlier attempt may
	// have had its effect.
	attemptHeader = "Onceward-Attempt"
	// webhookHeader holds the endpoint of a verified webhook.
	webhookHeader = "Onceward-Webhook"
)

const (
	dialTime = 5 * time.Second
	// idleTime is shorter than the keep-alive of Node and uvicorn (5 s) and of gunicorn (2 s). If
	// the service closes a connection while the proxy sends a request on it, the request ends with
	// 502, although the service is up.
	idleTime = time.Second
	idleMost = 256
)

// upstream passes requests on to the service.
type upstream struct {
	target *url.URL
	trust  bool
	log    *slog.Logger
	proxy  *httputil.ReverseProxy
}

func newUpstream(target *url.URL, trust bool, log *slog.Logger) *upstream {
	u := &upstream{target: target, trust: trust, log: log}
	u.proxy = &httputil.ReverseProxy{
		Rewrite: u.rewrite, ErrorHandler: u.fail,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Transport: transport{&http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTime}).DialContext,
			TLSHandshakeTimeout: dialTime, ForceAttemptHTTP2: true,
			MaxIdleConns: idleMost, MaxIdleConnsPerHost: idleMost, IdleConnTimeout: idleTime,
			DisableCompression: true, // the service's answer is stored and sent as it is
		}},
	}
	return u
}

func (u *upstream) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	pr.SetURL(u.target)
	out.Host = in.Host                 // it is part of the key: the service sees the same host
	out.URL.RawQuery = in.URL.RawQuery // ReverseProxy drops what it cannot parse; Twilio signs it
	const from = "X-Forwarded-For"
	if u.trust {
		out.Header[from] = in.Header[from]
	}
	pr.SetXForwarded()
	for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values := in.Header[name]; u.trust && len(values) > 0 {
			out.Header[name] = values
		}
	}
	dropOwn(out.Header)
	setHeaders(in.Context(), out.Header)
	hideKey(out.Header)
}

// dropOwn removes the headers that only the proxy may set. It also removes Onceward_Key: WSGI and
// CGI give it the same name as Onceward-Key.
func dropOwn(h http.Header) {
	for name := range h {
		if strings.HasPrefix(strings.ReplaceAll(strings.ToLower(name), "_", "-"), "onceward-") {
			delete(h, name)
		}
	}
}

// setHeaders tells the service those facts about the claim in ctx that it may know.
func setHeaders(ctx context.Context, h http.Header) {
	attempt, ok := dedup.FromContext(ctx)
	if !ok {
		return
	}
	h.Set(keyHeader, attempt.DownstreamKey("upstream"))
	h.Set(attemptHeader, strconv.Itoa(attempt.Number))
	if endpoint, ok := ctx.Value(endpointKey{}).(string); ok {
		h.Set(webhookHeader, endpoint)
	}
}

// hideKey spells the names of Idempotency-Key in lower case, which means the same to the service.
// http.Transport looks for its own spelling. If it finds that spelling, it sends a request without
// a body again when the connection breaks. A service that died after the effect would then run the
// effect twice, and the proxy would not know of the second attempt.
func hideKey(h http.Header) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = values
		}
	}
}

// errNotSent reports that a request has not reached the service.
var errNotSent = errors.New("the service cannot be reached")

// transport marks errors that came before there was a connection, because the service can have done
// nothing then.
type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	resp, err := t.base.RoundTrip(r.WithContext(ctx))
	if err != nil && !connected.Load() {
		err = errors.Join(errNotSent, err)
	}
	return resp, err
}

// fail answers for a service that has not answered. This answer is not stored: the key becomes
// free, or uncertain if the route is irreversible.
func (u *upstream) fail(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	notSent := errors.Is(err, errNotSent)
	if notSent {
		httpadapter.Forgo(ctx)
	}
	if ctx.Err() != nil {
		return // httpadapter answers after its Timeout; without a key, the client has gone
	}
	u.log.Warn("the service did not answer", "path", r.URL.Path, "reached", !notSent, "error", err)
	detail := "The service broke off; it may have done its work."
	if notSent {
		detail = "The service cannot be reached; nothing was done."
	}
	problem(w, http.StatusBadGateway, detail)
}

// problem writes an error of the proxy itself.
func problem(w http.ResponseWriter, status int, detail string) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if status >= 500 {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may have gone
		"title": http.StatusText(status), "status": status, "detail": detail})
}

// ServeHTTP passes a request on. If the request has a key, its connection is never switched to
// another protocol. ServeHTTP cuts off an answer that is too large to store, and httpadapter then
// sends an answer of its own.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, keyed := dedup.FromContext(r.Context()); !keyed {
		u.proxy.ServeHTTP(w, r)
		return
	}
	kept := &bounded{ResponseWriter: w}
	u.pass(kept, r, func() bool { return kept.full })
}

// pass passes a request on without switching to another protocol. ReverseProxy panics when it
// cannot copy the whole body of the answer: pass returns instead if half says that this is right.
func (u *upstream) pass(w http.ResponseWriter, r *http.Request, half func() bool) {
	r.Header.Del("Upgrade") // RFC 9110, 7.8: it may be ignored
	defer func() {
		if p := recover(); p != nil && (p != http.ErrAbortHandler || !half()) { //nolint:errorlint // as net/http
			panic(p)
		}
	}()
	u.proxy.ServeHTTP(w, r)
}

// bounded remembers that an answer was too large.
type bounded struct {
	http.ResponseWriter
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n, err := b.ResponseWriter.Write(p)
	b.full = b.full || errors.Is(err, httpadapter.ErrResponseTooLarge)
	return n, err
}

// Unwrap is for http.ResponseController.
func (b *bounded) Unwrap() http.ResponseWriter { return b.ResponseWriter }
