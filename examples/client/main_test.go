package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestEveryPaymentLandsOnce through a server that drops one answer in three.
func TestEveryPaymentLandsOnce(t *testing.T) {
	server, err := startFlaky(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.close()
	client, err := newClient(server.url)
	if err != nil {
		t.Fatal(err)
	}
	const n = 100
	payments := payAll(t.Context(), client, server.url, n)
	failures := map[string]int{}
	for _, p := range payments {
		if !strings.HasPrefix(p.answer, "201 Created") {
			t.Errorf("%s: %s after %v", p.id, p.answer, p.failures)
		}
		for _, f := range p.failures {
			failures[f]++
		}
	}
	// All three kinds of trouble were met.
	for _, f := range []string{"no answer", "503", "409 in flight"} {
		if failures[f] == 0 {
			t.Errorf("nobody met %q: %v", f, failures)
		}
	}
	if failures["no answer"] < n/3 {
		t.Errorf("too few answers were lost: %v", failures)
	}
	var out bytes.Buffer
	if err := report(&out, payments, server); err != nil || len(server.payments) != n {
		t.Errorf("%v: %d payments on the server\n%s", err, len(server.payments), &out)
	}
}

// TestReport sees what has landed twice, and what is missing.
func TestReport(t *testing.T) {
	server := &flaky{payments: map[string]int{"twice": 2, "once": 1}}
	for id, good := range map[string]bool{"once": true, "twice": false, "never": false} {
		if err := report(io.Discard, []*payment{{id: id}}, server); (err == nil) != good {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestAnotherKeyEachTime pays twice: it is the key that has a payment once, and the answer of the
// first of these is lost.
func TestAnotherKeyEachTime(t *testing.T) {
	server, err := startFlaky(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.close()
	for _, key := range []string{"1", "2"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.url+"/payments",
			strings.NewReader("invoice"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", `"`+key+`"`)
		resp, err := http.DefaultTransport.RoundTrip(r)
		if lost := err != nil; lost != (key == "1") {
			t.Errorf("key %s: %v", key, err)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
	}
	if n := server.landed("invoice"); n != 2 {
		t.Errorf("it has landed %d times", n)
	}
}

func TestRun(t *testing.T) {
	if err := run(t.Context(), 8, io.Discard); err != nil {
		t.Error(err)
	}
}
