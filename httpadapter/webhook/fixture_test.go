package webhook_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/httpadapter/webhook"
)

const secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"

// vector is a message of testdata/vectors.json.
type vector struct {
	Name, Provider   string
	Secrets, Private []string
	Now, Sent        int64
	Header           map[string]string
	Body, ID, Type   string
}

func vectors(t testing.TB) []vector {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	var list []vector
	require.NoError(t, json.Unmarshal(data, &list))
	return list
}

func (v vector) message() *webhook.Message {
	h := http.Header{}
	for name, value := range v.Header {
		h.Set(name, value)
	}
	return &webhook.Message{Header: h, Body: []byte(v.Body), Now: time.Unix(v.Now, 0)}
}

var presets = map[string]func(...string) (webhook.Provider, error){
	"standard-webhooks": webhook.StandardWebhooks,
	"stripe":            webhook.Stripe,
	"github":            webhook.GitHub,
	"shopify":           webhook.Shopify,
	"slack":             webhook.Slack,
}

func provider(t testing.TB, name string, secrets ...string) webhook.Provider {
	t.Helper()
	p, err := presets[name](secrets...)
	require.NoError(t, err)
	return p
}

func newDeduper(t testing.TB, store dedup.Store, change func(*dedup.Config)) *dedup.Deduper {
	t.Helper()
	cfg := dedup.Config{Namespace: "webhook", Window: 31 * 24 * time.Hour,
		LeaseTTL: 10 * time.Second}
	if change != nil {
		change(&cfg)
	}
	d, err := dedup.New(store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

func claimed(t testing.TB, store dedup.Store, change func(*dedup.Config)) httpadapter.Runner {
	t.Helper()
	run, err := httpadapter.Claimed(newDeduper(t, store, change))
	require.NoError(t, err)
	return run
}

// endpoint is a receiver that records its deliveries and its log.
type endpoint struct {
	*webhook.Receiver
	runs atomic.Int64
	log  bytes.Buffer // of one request at a time
}

func newEndpoint(t testing.TB, run httpadapter.Runner, p webhook.Provider, handle webhook.Handler,
	cfg webhook.Config) *endpoint {
	t.Helper()
	e := &endpoint{}
	if cfg.Endpoint == "" {
		cfg.Endpoint = "billing"
	}
	cfg.Logger = slog.New(slog.NewTextHandler(&e.log, nil))
	var err error
	e.Receiver, err = webhook.New(run, p, func(ctx context.Context, d *webhook.Delivery) error {
		e.runs.Add(1)
		if handle == nil {
			return nil
		}
		return handle(ctx, d)
	}, cfg)
	require.NoError(t, err)
	return e
}

func (e *endpoint) wantRuns(t *testing.T, want int64) {
	t.Helper()
	assert.Equal(t, want, e.runs.Load(), "runs of the handler")
}

func request(h http.Header, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/hooks", strings.NewReader(body))
	for name, values := range h {
		r.Header[name] = values
	}
	return r
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// standard is a message of Standard Webhooks, signed now.
func standard(t testing.TB, id, body string) *http.Request {
	t.Helper()
	h, err := webhook.Sign(id, time.Now(), []byte(body), secret)
	require.NoError(t, err)
	return request(h, body)
}

const gitHubSecret = "hush"

func gitHub(id, event, body string) *http.Request {
	mac := hmac.New(sha256.New, []byte(gitHubSecret))
	mac.Write([]byte(body))
	h := http.Header{}
	h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	h.Set("X-GitHub-Delivery", id)
	h.Set("X-GitHub-Event", event)
	return request(h, body)
}

func wantOK(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, 0, w.Body.Len())
}

func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, name, retryAfter string) {
	t.Helper()
	var got struct{ Type string }
	err := json.Unmarshal(w.Body.Bytes(), &got)
	require.NoError(t, err, "got %d, no problem: %q", w.Code, w.Body)
	assert.Equal(t, status, w.Code)
	assert.True(t, strings.HasSuffix(got.Type, "/docs/reference/http.md#"+name))
	assert.Equal(t, retryAfter, w.Header().Get("Retry-After"))
}

// fake is a Runner that does what a test says.
type fake struct {
	do func(ctx context.Context, key string, effect httpadapter.Effect,
		req dedup.Request) (dedup.Result[[]byte], error)
	window time.Duration
	limit  int
}

func (f *fake) Run(ctx context.Context, key string, effect httpadapter.Effect,
	opts ...dedup.Option) (dedup.Result[[]byte], error) {
	var req dedup.Request
	for _, opt := range opts {
		opt(&req)
	}
	return f.do(ctx, key, effect, req)
}

func (f *fake) Window() time.Duration { return f.window }
func (f *fake) ResultLimit() int      { return f.limit }
