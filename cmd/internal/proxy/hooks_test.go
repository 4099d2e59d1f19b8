package proxy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// signed returns the headers of Standard Webhooks.
func signed(id, body string) []string {
	now := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte("0123456789abcdef0123456789abcdef"))
	fmt.Fprintf(mac, "%s.%s.%s", id, now, body)
	return []string{"Webhook-Id: " + id, "Webhook-Timestamp: " + now,
		"Webhook-Signature: v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))}
}

var standardSecret = "whsec_" +
	base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))

const hooksFile = `
routes:
- {path: /, plain: true}
webhooks:
- {path: /hooks/billing, to: /internal/billing, provider: standard, endpoint: billing,
   secrets: [{file: %s}]}
- {path: /hooks/ci, provider: github, endpoint: ci, events: [push],
   secrets: [{env: PROXY_TEST_SECRET}]}
`

// A verified event reaches the service once, at its path. A forged event never does, whatever the
// spelling of its path.
func TestWebhooks(t *testing.T) {
	t.Setenv("PROXY_TEST_SECRET", "github secret")
	var n atomic.Int64
	seen := make(chan *http.Request, 100)
	status := atomic.Int64{}
	status.Store(500)
	r := start(t, func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		text, _ := io.ReadAll(r.Body)
		r.Header.Set("X-Body", string(text))
		seen <- r
		w.WriteHeader(int(status.Load()))
	}, fmt.Sprintf(hooksFile, written(t, "secret", standardSecret+"\n")), "--unscoped")
	const body = `{"type":"invoice.paid"}`
	send := func(path, id string) answer {
		return r.send("POST", path, body, append(signed(id, body), "Connection: Upgrade",
			"Upgrade: x")...)
	}
	send("/hooks/billing", "evt1").wants(t, 500, "handler-failed")
	status.Store(404)
	send("/hooks/billing", "evt1").wants(t, 500, "handler-failed")
	status.Store(204)
	for range 3 {
		send("/hooks/billing", "evt1").wants(t, 200, "")
	}
	require.EqualValues(t, 3, n.Load())
	first, _, third := next(t, seen), next(t, seen), next(t, seen)
	assert.Equal(t, "/internal/billing", third.URL.Path)
	assert.Equal(t, body, third.Header.Get("X-Body"))
	assert.Equal(t, "billing", third.Header.Get(webhookHeader))
	assert.Equal(t, "evt1", third.Header.Get("Webhook-Id"))
	assert.Equal(t, "3", third.Header.Get(attemptHeader))
	assert.Equal(t, first.Header.Get(keyHeader), third.Header.Get(keyHeader))
	for _, path := range []string{"/hooks/billing", "/hooks/billing/", "//hooks/billing",
		"/hooks/./billing", "/x/../hooks/billing", "/hooks%2Fbilling", "/%68ooks/billing",
		"/Hooks/Billing", "/hooks/billing;a=b", "/hooks;a=b/billing", "/x/..;a=b/hooks/billing",
		"/hooks/billing%3Ba", "/hooks%5Cbilling", "/x/..%5Chooks/billing"} {
		r.send("POST", path, body).wants(t, 401, "not-verified")
	}
	for _, path := range []string{"/internal/billing", "/internal//billing", "/INTERNAL/billing/",
		"/internal/billing;a"} {
		send(path, "evt2").wants(t, 404, "Nothing is served here")
	}
	assert.EqualValues(t, 3, n.Load())
	r.send("POST", "/hooks/other", body).wants(t, 204, "")
	assert.Empty(t, next(t, seen).Header.Get(webhookHeader))
	github(r, "push").wants(t, 200, "")
	github(r, "push").wants(t, 200, "")
	github(r, "fork").wants(t, 200, "")
	assert.EqualValues(t, 5, n.Load(), "one push, and no fork")
	assert.NotContains(t, r.log.String(), "github secret")
	assert.NotContains(t, r.log.String(), standardSecret)
}

// A webhook's path may end with a slash, as in Django. It is still only for the webhook.
func TestWebhookPathWithASlash(t *testing.T) {
	var n atomic.Int64
	r := start(t, func(_ http.ResponseWriter, r *http.Request) {
		n.Add(1)
		assert.Equal(t, "/internal/billing/", r.URL.Path)
	}, fmt.Sprintf(`
routes:
- {path: /, plain: true}
webhooks:
- {path: /hooks/billing/, to: /internal/billing/, provider: standard, endpoint: billing,
   secrets: [{file: %s}]}
`, written(t, "secret", standardSecret)), "--unscoped")
	for _, path := range []string{"/hooks/billing/", "/hooks/billing"} {
		r.send("POST", path, "{}").wants(t, 401, "not-verified")
	}
	for _, path := range []string{"/internal/billing/", "/internal/billing"} {
		r.send("POST", path, "{}").wants(t, 404, "Nothing is served here")
	}
	r.send("POST", "/hooks/billing/", "{}", signed("evt1", "{}")...).wants(t, 200, "")
	assert.EqualValues(t, 1, n.Load())
}

// If the service has not answered, the log says so.
func TestWebhookOfASlowService(t *testing.T) {
	r := start(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // else the server cannot notice a closed connection
		<-r.Context().Done()
	}, fmt.Sprintf(`
webhooks:
- {path: /hooks/billing, provider: standard, endpoint: billing, timeout: 50ms,
   secrets: [{file: %s}]}
`, written(t, "secret", standardSecret)), "--unscoped")
	r.send("POST", "/hooks/billing", "{}", signed("evt1", "{}")...).wants(t, 500, "handler-failed")
	assert.Contains(t, r.log.String(), "the service did not answer: context deadline exceeded")
}

func github(r *rig, event string) answer {
	mac := hmac.New(sha256.New, []byte("github secret"))
	mac.Write([]byte("{}"))
	return r.send("POST", "/hooks/ci", "{}", "X-GitHub-Event: "+event, "X-GitHub-Delivery: d1",
		"X-Hub-Signature-256: sha256="+hex.EncodeToString(mac.Sum(nil)))
}
