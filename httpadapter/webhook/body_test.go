package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/httpadapter/webhook"
)

// neverRead is a body that must not be read.
type neverRead struct{ t *testing.T }

func (b neverRead) Read([]byte) (int, error) {
	b.t.Error("the body was read before the headers were looked at")
	return 0, io.EOF
}

// A delivery whose headers cannot be genuine costs no memory: it is refused before its body is
// read.
func TestHeadersAreCheckedBeforeTheBody(t *testing.T) {
	now, hex64 := time.Now().Unix(), strings.Repeat("ab", 32)
	old := now - 3600
	presets := map[string]struct {
		provider func() (webhook.Provider, error)
		bad      []http.Header
	}{
		"standard": {func() (webhook.Provider, error) {
			return webhook.StandardWebhooks("whsec_" + strings.Repeat("A", 32))
		}, []http.Header{
			{"Webhook-Id": {"m"}, "Webhook-Timestamp": {fmt.Sprint(now)}},
			{"Webhook-Id": {"m"}, "Webhook-Timestamp": {fmt.Sprint(now)},
				"Webhook-Signature": {"v2,AAAA"}},
			{"Webhook-Id": {"m"}, "Webhook-Timestamp": {fmt.Sprint(old)},
				"Webhook-Signature": {"v1,AAAA"}},
		}},
		"stripe": {func() (webhook.Provider, error) { return webhook.Stripe("s") }, []http.Header{
			{}, {"Stripe-Signature": {fmt.Sprintf("t=%d", now)}},
			{"Stripe-Signature": {fmt.Sprintf("t=%d,v1=%s", old, hex64)}},
		}},
		"github": {func() (webhook.Provider, error) { return webhook.GitHub("s") }, []http.Header{
			{}, {"X-Hub-Signature-256": {"sha256=ab"}}, {"X-Hub-Signature-256": {hex64}},
		}},
		"shopify": {func() (webhook.Provider, error) {
			return webhook.Shopify("s")
		}, []http.Header{{}, {"X-Shopify-Hmac-Sha256": {"AAAA"}}}},
		"slack": {func() (webhook.Provider, error) { return webhook.Slack("s") }, []http.Header{
			{}, {"X-Slack-Signature": {"v0=" + hex64},
				"X-Slack-Request-Timestamp": {fmt.Sprint(old)}},
		}},
		"hmac": {func() (webhook.Provider, error) {
			return webhook.HMAC(webhook.HMACConfig{Name: "own", Secrets: []string{"s"},
				Header: "X-Sig", IDMember: "id", Horizon: time.Hour})
		}, []http.Header{{}, {"X-Sig": {"not hex"}}}},
	}
	for name, p := range presets {
		t.Run(name, func(t *testing.T) {
			provider, err := p.provider()
			require.NoError(t, err)
			rc := receiver(t, provider, webhook.Config{})
			for _, h := range p.bad {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", neverRead{t})
				r.Header, r.ContentLength = h, 100
				w := httptest.NewRecorder()
				rc.ServeHTTP(w, r)
				assert.Equal(t, http.StatusUnauthorized, w.Code, "%v", h)
			}
		})
	}
}

// slow is a body that ends when the test closes it.
type slow struct {
	*io.PipeReader
	more *io.PipeWriter
}

// Unverified bodies take no more memory than MaxUnverified. A delivery beyond that is refused, and
// the sender repeats it. When there is room again, deliveries are received.
func TestUnverifiedBodiesAreBounded(t *testing.T) {
	const kib = 1 << 10
	provider := webhook.Provider{Name: "p", Horizon: time.Hour, BodyLimit: 64 * kib,
		Verify: func(m *webhook.Message) (webhook.Identity, error) {
			return webhook.Identity{ID: m.Header.Get("Id"), Signed: true}, nil
		}}
	rc := receiver(t, provider, webhook.Config{MaxUnverified: 160 * kib})
	send := func(id string, body io.Reader, length int64) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
		r.Header, r.ContentLength = http.Header{"Id": {id}}, length
		w := httptest.NewRecorder()
		rc.ServeHTTP(w, r)
		return w.Code
	}
	hung := make(chan int, 2)
	var open []slow
	for i := range 2 {
		read, write := io.Pipe()
		open = append(open, slow{read, write})
		go func() { hung <- send(fmt.Sprint("hung-", i), read, -1) }()
		for range 63 { // each write returns when it has been read
			_, err := write.Write(make([]byte, kib))
			require.NoError(t, err)
		}
	}
	assert.Equal(t, http.StatusServiceUnavailable,
		send("one too many", strings.NewReader(strings.Repeat("x", 60*kib)), 60*kib))
	assert.Equal(t, http.StatusOK, send("small", strings.NewReader("x"), 1),
		"room follows what has come, not what others announce")
	for _, s := range open {
		require.NoError(t, s.more.Close())
		assert.Equal(t, http.StatusOK, <-hung)
	}
	for i := range 20 { // the room of every body is free again, however its request ended
		assert.Equal(t, http.StatusOK,
			send(fmt.Sprint("later-", i), strings.NewReader(strings.Repeat("x", 60*kib)), 60*kib))
		assert.Equal(t, http.StatusRequestEntityTooLarge,
			send("large", strings.NewReader(strings.Repeat("x", 65*kib)), -1))
	}
	_, err := webhook.New(runner(t), provider, nothing,
		webhook.Config{Endpoint: "e", MaxUnverified: 64 * kib})
	var input *dedup.InputError
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "webhook.Config.MaxUnverified", input.Field)
}

func nothing(context.Context, *webhook.Delivery) error { return nil }

func runner(t *testing.T) httpadapter.Runner {
	t.Helper()
	d, err := dedup.New(dedup.Memory(1000),
		dedup.Config{Namespace: "n", Window: 40 * 24 * time.Hour, LeaseTTL: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	run, err := httpadapter.Claimed(d)
	require.NoError(t, err)
	return run
}

func receiver(t *testing.T, p webhook.Provider, cfg webhook.Config) *webhook.Receiver {
	t.Helper()
	cfg.Endpoint = "e"
	rc, err := webhook.New(runner(t), p, nothing, cfg)
	require.NoError(t, err)
	return rc
}
