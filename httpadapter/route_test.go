package httpadapter_test

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/httpadapter"
)

// A client, a proxy or an SDK may write one address in several ways. A retry with another spelling
// is the same request: it gets the answer of the first, and nothing runs a second time.
func TestSpellingsOfOneAddress(t *testing.T) {
	overTLS := func(r *http.Request) { r.TLS = &tls.ConnectionState{} }
	for _, row := range []struct {
		name       string
		one, other []func(*http.Request)
	}{
		{"upper case", nil, as(host("API.EXAMPLE"))},
		{"port of http", nil, as(host("api.example:80"))},
		{"port of https, behind a proxy that ends TLS", nil, as(host("api.example:443"))},
		{"port of https", as(overTLS), as(overTLS, host("api.example:443"))},
		{"empty port", nil, as(host("api.example:"))},
		{"dot", nil, as(host("api.example."))},
		{"dot and port", nil, as(host("Api.Example.:443"))},
		{"dot before another port", as(host("api.example:8080")), as(host("api.example.:8080"))},
		{"port after an address", as(host("[2001:DB8::443]")), as(host("[2001:db8::443]:443"))},
		{"escaped letter", nil, as(target("/%70ayments"))},
		{"escaped unreserved characters", as(target("/a-b.c_d~e9Z")),
			as(target("/%61%2Db%2ec%5fd%7Ee%39%5A"))},
		{"case of an escape", as(target("/a%2Fb%c3%a9")), as(target("/a%2fb%C3%A9"))},
		{"absolute form", nil, as(func(r *http.Request) {
			r.RequestURI = "http://api.example/%70ayments"
		})},
		{"no request line", as(target("/a%2Fb")), as(target("/a%2fb"), func(r *http.Request) {
			r.RequestURI = ""
		})},
	} {
		t.Run(row.name, func(t *testing.T) {
			// Its host is in the fingerprint as well, in the same spelling.
			s := newService(t, httpadapter.Config{FingerprintHeaders: []string{"Host"}}, created())
			wantAnswer(t, s.post("k", "{}", row.one...), 201, "paid", firstTime)
			wantAnswer(t, s.post("k", "{}", row.other...), 201, "paid", replayed)
			s.wantRuns(t, 1)
		})
	}
}

// Two different addresses stay different.
func TestAddressesThatOnlyLookAlike(t *testing.T) {
	overTLS := func(r *http.Request) { r.TLS = &tls.ConnectionState{} }
	for _, row := range []struct {
		name       string
		one, other []func(*http.Request)
	}{
		{"another port", nil, as(host("api.example:8080"))},
		{"port of http over TLS", as(overTLS), as(overTLS, host("api.example:80"))},
		{"end of an address", as(host("[2001:db8::1]")), as(host("[2001:db8::1:443]"))},
		{"escaped slash", as(target("/a/b")), as(target("/a%2Fb"))},
		{"escaped percent", as(target("/%41")), as(target("/%2541"))},
		{"escaped question mark", as(target("/a")), as(target("/a%3F"))},
		{"doubled slash", as(target("/a/b")), as(target("/a//b"))},
		{"case of a path", as(target("/a")), as(target("/A"))},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newService(t, httpadapter.Config{}, created())
			wantAnswer(t, s.post("k", "{}", row.one...), 201, "paid", firstTime)
			wantAnswer(t, s.post("k", "{}", row.other...), 201, "paid", firstTime)
			s.wantRuns(t, 2)
		})
	}
}

// A service with regional host names can say so in SameHost. Other names stay apart.
func TestSameHost(t *testing.T) {
	var asked []string
	region := func(host string) string {
		asked = append(asked, host)
		if _, parent, ok := strings.Cut(host, ".api.example"); ok && parent == "" {
			return "api.example"
		}
		return host
	}
	s := newService(t, httpadapter.Config{SameHost: region, FingerprintHeaders: []string{"Host"}},
		created())
	wantAnswer(t, s.post("k", "{}", host("eu.api.example")), 201, "paid", firstTime)
	wantAnswer(t, s.post("k", "{}", host("US.api.example.:443")), 201, "paid", replayed)
	wantAnswer(t, s.post("k", "{}"), 201, "paid", replayed)
	wantAnswer(t, s.post("k", "{}", host("eu.api.example.evil")), 201, "paid", firstTime)
	s.wantRuns(t, 2)
	assert.Contains(t, asked, "us.api.example",
		"SameHost is asked about the host in its one spelling")
}

// The host is the tenant, and accounts are unique only within a tenant. Nobody sees another
// tenant's answer, even if fingerprints have two versions of the key and are not compared.
func TestTenantsByHost(t *testing.T) {
	key := func(version int) *httpadapter.FingerprintKey {
		return &httpadapter.FingerprintKey{Version: version, Key: make([]byte, 32)}
	}
	d := newDeduper(t, nil)
	tenant := func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("of " + r.Host))
	}
	before := newServiceOver(t, d, httpadapter.Config{FingerprintKey: key(1)}, tenant)
	after := newServiceOver(t, d, httpadapter.Config{FingerprintKey: key(2)}, tenant)
	for _, shop := range []string{"one.shop.example", "two.shop.example"} {
		wantAnswer(t, before.post("k", "{}", host(shop)), 200, "of "+shop, firstTime)
	}
	for _, s := range []*service{before, after} {
		for _, shop := range []string{"one.shop.example", "two.shop.example"} {
			wantAnswer(t, s.post("k", "{}", host(shop)), 200, "of "+shop, replayed)
		}
	}
	wantAnswer(t, after.post("k", "{}", host("three.shop.example")), 200, "of three.shop.example",
		firstTime)
}

func as(change ...func(*http.Request)) []func(*http.Request) { return change }
