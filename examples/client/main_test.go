package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryPaymentLandsOnce: the server drops one answer in three, and each payment lands once.
func TestEveryPaymentLandsOnce(t *testing.T) {
	server, err := startFlaky(t.Context())
	require.NoError(t, err)
	defer server.close()
	client, err := newClient(server.url)
	require.NoError(t, err)
	const n = 100
	payments := payAll(t.Context(), client, server.url, n)
	failures := map[string]int{}
	for _, p := range payments {
		assert.True(t, strings.HasPrefix(p.answer, "201 Created"), "%s: %s after %v", p.id,
			p.answer, p.failures)
		for _, f := range p.failures {
			failures[f]++
		}
	}
	// All three kinds of failures have happened.
	for _, f := range []string{"no answer", "503", "409 in flight"} {
		assert.NotZero(t, failures[f], "nobody met %q: %v", f, failures)
	}
	assert.GreaterOrEqual(t, failures["no answer"], n/3, "too few answers were lost: %v", failures)
	var out bytes.Buffer
	assert.NoError(t, report(&out, payments, server), "%d payments on the server\n%s",
		len(server.payments), &out)
	assert.Len(t, server.payments, n, "%d payments on the server\n%s", len(server.payments), &out)
}

// TestReport: a payment that landed twice, or never, is an error.
func TestReport(t *testing.T) {
	server := &flaky{payments: map[string]int{"twice": 2, "once": 1}}
	for id, good := range map[string]bool{"once": true, "twice": false, "never": false} {
		err := report(io.Discard, []*payment{{id: id}}, server)
		assert.Equal(t, good, err == nil, "%s: %v", id, err)
	}
}

// TestAnotherKeyEachTime: with a new key for the second try the payment is made twice. The answer
// to the first try is lost.
func TestAnotherKeyEachTime(t *testing.T) {
	server, err := startFlaky(t.Context())
	require.NoError(t, err)
	defer server.close()
	for _, key := range []string{"1", "2"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.url+"/payments",
			strings.NewReader("invoice"))
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", `"`+key+`"`)
		resp, err := http.DefaultTransport.RoundTrip(r)
		assert.Equal(t, key == "1", err != nil, "key %s: %v", key, err)
		if err == nil {
			_ = resp.Body.Close()
		}
	}
	assert.Equal(t, 2, server.landed("invoice"), "landings")
}

func TestRun(t *testing.T) {
	assert.NoError(t, run(t.Context(), 8, io.Discard))
}
