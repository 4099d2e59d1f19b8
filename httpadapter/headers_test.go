package httpadapter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/internal/encrypted"
)

var never = []string{
	"Set-Cookie", "Set-Cookie2", "Authorization", "Proxy-Authorization", "WWW-Authenticate",
	"Proxy-Authenticate",
	"Authentication-Info", "Proxy-Authentication-Info", "Clear-Site-Data", "Connection",
	"Keep-Alive", "Proxy-Connection",
	"TE", "Trailer", "Transfer-Encoding", "Upgrade", "Date", "Content-Length",
	"Age", "Idempotent-Replayed",
}

// noted is a store that records the results it gets.
type noted struct {
	dedup.Store
	results [][]byte
}

func (s *noted) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	for _, c := range changes {
		s.results = append(s.results, bytes.Clone(c.Result))
	}
	return s.Store.Finish(ctx, changes)
}

func TestHeadersThatAreKept(t *testing.T) {
	store := &noted{Store: dedup.Memory(10)}
	keep := httpadapter.Config{Headers: []string{"x-request-cost", "ETag"}}
	s := newServiceOver(t, newDeduperOver(t, store, nil),
		keep, func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			for _, name := range httpadapter.DefaultHeaders() {
				h.Set(name, "kept-"+name)
			}
			for _, name := range never {
				if name != "Content-Length" && name != "Transfer-Encoding" && name != "Trailer" {
					h.Set(name, "secret")
				}
			}
			h.Set("X-Request-Cost", "7")
			h.Set("X-Other", "secret")
			h["vary"] = []string{"Accept", "Origin"} // not canonical, and in two lines
			h.Del("Vary")
			h["Link"] = []string{"<a>", "<b>"}
			h.Set(http.TrailerPrefix+"X-Sum", "secret")
			w.WriteHeader(http.StatusCreated)
			h.Set("Etag", "too late")
		})
	first := s.post("k", "")
	for _, name := range never {
		if name == "Content-Length" || name == "Transfer-Encoding" || name == "Trailer" {
			continue // net/http sets these
		}
		assert.Equal(t, "secret", first.Header().Get(name), "%s is not in the first answer", name)
	}
	again := s.post("k", "")
	wantHeaders(t, again, replayed)
	wantHeaders(t, again, map[string]string{"X-Request-Cost": "7", "X-Other": "",
		"Etag": "kept-Etag", "Location": "kept-Location"})
	for name, want := range map[string][]string{"Vary": {"Accept", "Origin"},
		"Link": {"<a>", "<b>"}} {
		assert.Equal(t, want, again.Header()[name], name)
	}
	for _, name := range never {
		assert.False(t, name != "Idempotent-Replayed" && again.Header().Get(name) == "secret",
			"%s is replayed", name)
	}
	require.Len(t, store.results, 1)
	assert.False(t, bytes.Contains(store.results[0], []byte("secret")), "stored: %q", store.results)
}

// A record of an older configuration, or of a foreign writer, may contain headers that are denied
// or not kept now.
func TestDeniedHeadersOfARecordAreNotReplayed(t *testing.T) {
	h := map[string][]string{"Location": {"/a"}, "bad name": {"x"}, "x-kept": {"1"}}
	for _, name := range append(slices.Clone(never), "X-Internal", "Access-Control-Allow-Origin") {
		h[name], h[strings.ToLower(name)] = []string{"secret"}, []string{"secret"}
	}
	stored := encrypted.Encode(&encrypted.Response{Status: 201, Header: h, Body: []byte("paid")})
	m := newMiddleware(t, answering(dedup.Result[[]byte]{Outcome: dedup.Duplicate, Value: stored},
		nil), byHeader, httpadapter.Config{Headers: []string{"X-Kept"}})
	w := send(m.Handler(status(200)), post("k", ""))
	wantAnswer(t, w, 201, "paid",
		map[string]string{"Location": "/a", "X-Kept": "1", "Idempotent-Replayed": "true",
			"Content-Length": "4"})
	for name, values := range w.Header() {
		assert.NotContains(t, values, "secret")
		assert.NotEqual(t, "bad name", name)
	}
}

func TestDeniedHeadersAreRefusedInConfig(t *testing.T) {
	run := newClaimed(t, newDeduper(t, nil))
	for _, name := range append([]string{"", "a b", "set-cookie", "a\nb", "Idempotency-Window"},
		never...) {
		_, err := httpadapter.New(run, byHeader,
			httpadapter.Config{Headers: []string{"X-Good", name}})
		wantInputError(t, err, "httpadapter.Config.Headers")
	}
}

// A header of an outer middleware is for one request. A replay has the one of its own request. A
// kept name that the handler did not set is not stored.
func TestHeadersOfOuterMiddlewareAreNotStored(t *testing.T) {
	request := 0
	keep := httpadapter.Config{Headers: []string{"X-Request-Id", "X-Cost"}}
	s := newService(t, keep, func(w http.ResponseWriter, r *http.Request) {
		assert.NotEmpty(t, w.Header().Get("X-Request-Id"),
			"the handler does not see what is outside")
		w.Header().Set("X-Cost", "7")
		w.Header().Add("Vary", "Accept")
		w.Header().Del("Cache-Control")
		w.WriteHeader(http.StatusOK)
	})
	inner := s.h
	s.h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request++
		w.Header().Set("X-Request-Id", fmt.Sprint(request))
		w.Header().Set("X-Cost", "0")
		w.Header().Set("Cache-Control", "private")
		w.Header().Set("Vary", "Origin")
		inner.ServeHTTP(w, r)
	})
	first := s.post("k", "")
	wantHeaders(t, first, map[string]string{"X-Request-Id": "1", "X-Cost": "7",
		"Cache-Control": ""})
	again := s.post("k", "")
	wantHeaders(t, again, map[string]string{"X-Request-Id": "2", "X-Cost": "7",
		"Cache-Control": "private"})
	assert.Equal(t, []string{"Origin", "Accept"}, again.Header()["Vary"])
}

// Only net/http frames an answer, and only the middleware reports the window.
func TestHeadersThatAHandlerCannotSet(t *testing.T) {
	s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Trailer", "X-Sum")
		h.Set("Transfer-Encoding", "chunked")
		h.Set(http.TrailerPrefix+"X-Sum", "1")
		h.Del("Idempotency-Window")
		_, _ = w.Write([]byte("body"))
		h.Set("X-Sum", "1")
	})
	w := &plain{header: http.Header{}}
	s.h.ServeHTTP(w, post("k", ""))
	want := http.Header{"Idempotency-Window": {"86400"}, "Content-Length": {"4"},
		"Content-Type": {"text/plain; charset=utf-8"}}
	assert.Equal(t, want, w.header)
}

// If the handler suppresses the content type, it stays suppressed. If net/http would detect it from
// the body, it is detected and stored.
func TestContentTypes(t *testing.T) {
	for name, row := range map[string]struct {
		set  func(http.Header)
		want []string
	}{
		"found":      {func(http.Header) {}, []string{"text/html; charset=utf-8"}},
		"set":        {func(h http.Header) { h.Set("Content-Type", "a/b") }, []string{"a/b"}},
		"suppressed": {func(h http.Header) { h["Content-Type"] = nil }, nil},
		"encoded":    {func(h http.Header) { h.Set("Content-Encoding", "br") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, _ *http.Request) {
				row.set(w.Header())
				_, _ = w.Write([]byte("<html>"))
			})
			for range 2 {
				w := &plain{header: http.Header{}}
				s.h.ServeHTTP(w, post("k", ""))
				got, ok := w.header["Content-Type"]
				assert.ElementsMatch(t, row.want, got)
				assert.True(t, ok || name != "suppressed", "not suppressed")
			}
		})
	}
}

// plain is a ResponseWriter that adds no headers.
type plain struct {
	header   http.Header
	statuses []int
}

func (p *plain) Header() http.Header         { return p.header }
func (p *plain) WriteHeader(s int)           { p.statuses = append(p.statuses, s) }
func (p *plain) Write(b []byte) (int, error) { return len(b), nil }

// A handler's writer must not give access to the writer behind it.
func TestWriterKeepsToItself(t *testing.T) {
	s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		_, ok := w.(interface{ Unwrap() http.ResponseWriter })
		assert.False(t, ok, "it unwraps")
		_, ok = w.(http.Hijacker)
		assert.False(t, ok, "it claims to be hijacked")
		_, ok = w.(interface{ ReadFrom() })
		assert.False(t, ok, "it reads")
		c := http.NewResponseController(w)
		_, _, err := c.Hijack()
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorIs(t, c.EnableFullDuplex(), errors.ErrUnsupported)
		w.Header().Set("Location", "/a")
		assert.NoError(t, c.Flush())
		w.(http.Flusher).Flush()
		// Flush has sent the headers, so these changes have no effect, as in net/http
		w.Header().Set("Location", "/b")
		w.WriteHeader(http.StatusInternalServerError) // this has no effect either
	})
	front := &plain{header: http.Header{}}
	inner := s.h
	s.h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(flushing{front, t}, r)
		inner.ServeHTTP(w, r)
	})
	wantAnswer(t, s.post("k", ""), 200, "",
		map[string]string{"Location": "/a", "Idempotent-Replayed": "true"})
	assert.Equal(t, []int{200}, front.statuses, "the first answer")
}

type flushing struct {
	*plain
	t *testing.T
}

func (f flushing) Flush()                               { f.t.Error("flushed") }
func (f flushing) Push(string, *http.PushOptions) error { f.t.Error("pushed"); return nil }
func (f flushing) Hijack() (conn any, buf any, err error) {
	f.t.Error("hijacked")
	return nil, nil, nil
}
func (f flushing) ReadFrom(interface{ Read([]byte) (int, error) }) (int64, error) {
	f.t.Error("read from")
	return 0, nil
}

// Early hints are sent at once, with the current headers. The answer has its own headers.
func TestInformationalAnswersPass(t *testing.T) {
	w := &plain{header: http.Header{"X-Outer": {"1"}}}
	s := newService(t, httpadapter.Config{}, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Link", "</style.css>")
		rw.WriteHeader(http.StatusEarlyHints)
		assert.Equal(t, []int{103}, w.statuses)
		assert.Empty(t, w.header.Get("Link"))
		assert.Equal(t, "1", w.header.Get("X-Outer"))
		rw.Header().Del("Link")
		rw.WriteHeader(http.StatusProcessing)
		rw.WriteHeader(http.StatusCreated)
		rw.WriteHeader(http.StatusEarlyHints)
		rw.WriteHeader(http.StatusInternalServerError)
	})
	s.h.ServeHTTP(w, post("k", ""))
	assert.Equal(t, []int{103, 102, 201}, w.statuses)
	assert.Empty(t, w.header.Get("Link"))
	wantAnswer(t, s.post("k", ""), 201, "", replayed)
}

func TestStatusThatHasNoBody(t *testing.T) {
	for _, code := range []int{204, 304} {
		s := newService(t, httpadapter.Config{}, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, err := w.Write([]byte("x"))
			assert.ErrorIs(t, err, http.ErrBodyNotAllowed, code)
		})
		for range 2 {
			w := s.post("k", "")
			wantAnswer(t, w, code, "", map[string]string{"Content-Length": "", "Content-Type": ""})
		}
	}
}

func TestImpossibleStatusPanics(t *testing.T) {
	for _, code := range []int{0, 99, 1000} {
		s := newService(t, httpadapter.Config{}, status(code))
		func() {
			defer func() {
				assert.NotNil(t, recover(), "%d was taken", code)
			}()
			s.post("k", "")
		}()
	}
}
