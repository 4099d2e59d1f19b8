package httpadapter_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

func target(path string) func(*http.Request) {
	return func(r *http.Request) {
		u, err := r.URL.Parse(path)
		if err != nil {
			panic(err)
		}
		r.URL, r.RequestURI = u, path
	}
}

// One key in two scopes is two requests, so each of these requests runs.
func TestKeysDoNotCross(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"another tenant": header("X-Account", "evil"),
		"another route":  target("/refunds"),
		"another method": func(r *http.Request) { r.Method = "PATCH" },
		"another host":   host("eu.api.example"),
		"escaped slash":  target("/%2Fpayments"),
		"another port":   host("api.example:8080"),
		"another key":    header("Idempotency-Key", "K"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, httpadapter.Config{}, created())
			wantAnswer(t, s.post("k", "{}"), 201, "paid", firstTime)
			w := s.post("k", "{}", change)
			wantAnswer(t, w, 201, "paid", firstTime)
			wantHeaders(t, w, map[string]string{"Location": "/payments/2"})
			wantHeaders(t, s.post("k", "{}"), map[string]string{"Location": "/payments/1"})
			wantHeaders(t, s.post("k", "{}", change), map[string]string{"Location": "/payments/2"})
			s.wantRuns(t, 2)
		})
	}
}

func TestOneRouteWrittenDifferently(t *testing.T) {
	s := newService(t, httpadapter.Config{}, created())
	s.post("k", "{}")
	wantAnswer(t, s.post("k", "{}", host("API.Example")), 201, "paid", replayed)
	wantAnswer(t, s.post("k", "{}", func(r *http.Request) {
		r.RequestURI = "http://api.example/payments"
	}), 201, "paid", replayed)
	wantAnswer(t, s.post("k", "{}", func(r *http.Request) {
		r.RequestURI = ""
	}), 201, "paid", replayed)
	s.wantRuns(t, 1)
}

// Behind http.StripPrefix two routes look alike.
func TestStripPrefix(t *testing.T) {
	s := newService(t, httpadapter.Config{}, created())
	mux := http.NewServeMux()
	mux.Handle("/v1/", http.StripPrefix("/v1", s.h))
	mux.Handle("/v2/", http.StripPrefix("/v2", s.h))
	for _, path := range []string{"/v1/pay", "/v2/pay"} {
		wantAnswer(t, send(mux, post("k", "{}", target(path))), 201, "paid", firstTime)
	}
	s.wantRuns(t, 2)
}

func TestMiddlewaresOfOneNamespace(t *testing.T) {
	d := newDeduper(t, nil)
	one := newServiceOver(t, d, httpadapter.Config{}, created())
	two := newServiceOver(t, d, httpadapter.Config{Name: "two"}, created())
	one.post("k", "{}")
	wantAnswer(t, two.post("k", "{}"), 201, "paid", firstTime)
	same := newServiceOver(t, d, httpadapter.Config{Name: "two"}, created())
	wantAnswer(t, same.post("k", "{}"), 201, "paid", replayed)
}

func TestRouteIsChosen(t *testing.T) {
	s := newService(t, httpadapter.Config{Route: func(r *http.Request) string {
		return "payments"
	}}, created())
	s.post("k", "{}")
	// Another path is another request, though: under the same key it is refused.
	wantProblem(t, s.post("k", "{}", target("/payments/7")), 422, "key-reused", nil)
	wantAnswer(t, s.post("k", "{}", host("other")), 201, "paid", replayed)
}

func TestUnscoped(t *testing.T) {
	s := newService(t, httpadapter.Config{}, created())
	m := newMiddleware(t, newClaimed(t, s.d), httpadapter.Unscoped, httpadapter.Config{})
	h := m.Handler(s.count(created()))
	wantAnswer(t, send(h, post("k", "{}", header("X-Account", "a"))), 201, "paid", firstTime)
	wantAnswer(t, send(h, post("k", "{}", header("X-Account", "b"))), 201, "paid", replayed)

	some := func(r *http.Request) (string, error) {
		if r.Host == "internal" {
			return httpadapter.Unscoped(r)
		}
		return byHeader(r)
	}
	h = newMiddleware(t, newClaimed(t, s.d),
		some, httpadapter.Config{Name: "some"}).Handler(created())
	wantAnswer(t, send(h, post("k", "{}", host("internal"), header("X-Account", ""))), 201,
		"paid", firstTime)
	wantProblem(t, send(h, post("k", "{}", header("X-Account", ""))), 401, "no-principal",
		map[string]string{"Idempotency-Window": "86400"})
}

// The principal is in nothing that the store gets. The route is only in the label, which is kept if
// the Deduper has Labels.
func TestScopeIsADigest(t *testing.T) {
	seen := map[string]bool{}
	run := &fake{do: func(_ context.Context, key string, _ httpadapter.Effect,
		req dedup.Request) (dedup.Result[[]byte], error) {
		assert.Equal(t, "k", key)
		assert.Equal(t, 43, len(req.Scope))
		assert.NotContains(t, req.Scope, "acme")
		assert.NotContains(t, req.Label, "acme")
		assert.False(t, seen[req.Scope])
		seen[req.Scope] = true
		return dedup.Result[[]byte]{}, errors.New("no")
	}}
	// The border between two parts cannot move.
	for _, part := range [][2]string{{"acme", "r"}, {"acm", "er"}, {"acmer", ""}, {"a", "cmer"}} {
		m := newMiddleware(t, run, func(*http.Request) (string, error) { return part[0], nil },
			httpadapter.Config{Route: func(*http.Request) string { return part[1] }})
		send(m.Handler(status(200)), post("k", ""))
	}
	assert.Len(t, seen, 4)
}
