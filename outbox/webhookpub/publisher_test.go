package webhookpub_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter/webhook"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/webhookpub"
)

var errNo = errors.New("no")

func secret(of byte, n int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{of}, n))
}

// receiver answers by h, and counts the requests.
func receiver(t *testing.T, h http.HandlerFunc) (endpoint webhookpub.Endpoint, hits *atomic.Int64) {
	t.Helper()
	hits = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return webhookpub.Endpoint{URL: s.URL, Secrets: []string{secret('a', 24)}}, hits
}

func answer(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

func to(endpoints ...webhookpub.Endpoint) func(context.Context, string) ([]webhookpub.Endpoint,
	error) {
	return func(context.Context, string) ([]webhookpub.Endpoint, error) { return endpoints, nil }
}

func publisher(t *testing.T, endpoints ...webhookpub.Endpoint) *webhookpub.Publisher {
	t.Helper()
	p, err := webhookpub.New(webhookpub.Config{Endpoints: to(endpoints...)})
	require.NoError(t, err)
	return p
}

func message(id string) outbox.Message {
	return outbox.Message{ID: id, Topic: "t", Payload: []byte(`{"type":"booked"}`),
		Headers: []outbox.Header{{Key: "onceward-id", Value: []byte(id)}}}
}

// one publishes one message.
func one(t *testing.T, p *webhookpub.Publisher, m outbox.Message) error {
	t.Helper()
	results := p.Publish(t.Context(), []outbox.Message{m})
	require.Len(t, results, 1)
	return results[0]
}

func TestNew(t *testing.T) {
	for field, cfg := range map[string]webhookpub.Config{
		"Endpoints": {},
		"Parallel":  {Endpoints: to(), Parallel: 1001},
	} {
		_, err := webhookpub.New(cfg)
		var input *outbox.InputError
		require.ErrorAs(t, err, &input, field)
		assert.Equal(t, "webhookpub.Config."+field, input.Field)
	}
}

// The receiver of httpadapter/webhook accepts a signed message with each of the secrets, and
// nothing else.
func TestSignatures(t *testing.T) {
	got := make(chan *webhook.Message, 1)
	endpoint, _ := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Equal(t, http.MethodPost, r.Method)
		got <- &webhook.Message{Header: r.Header, Body: body, Now: time.Now()}
	})
	endpoint.Secrets = []string{secret('o', 24), secret('n', 64)}
	require.NoError(t, one(t, publisher(t, endpoint), message("msg-1")))
	m := <-got
	for _, known := range endpoint.Secrets {
		provider, err := webhook.StandardWebhooks(known)
		require.NoError(t, err)
		require.NoError(t, provider.Precheck(m.Header, m.Now))
		identity, err := provider.Verify(m)
		require.NoError(t, err)
		assert.Equal(t, "msg-1", identity.ID)
		assert.Equal(t, "booked", identity.Type)
		assert.WithinDuration(t, m.Now, identity.Sent, 10*time.Second)
	}
	stranger, err := webhook.StandardWebhooks(secret('s', 24))
	require.NoError(t, err)
	_, err = stranger.Verify(m)
	require.ErrorIs(t, err, webhook.ErrSignature)
}

func TestContentType(t *testing.T) {
	got := make(chan http.Header, 1)
	endpoint, _ := receiver(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	p := publisher(t, endpoint)
	m := message("1")
	require.NoError(t, one(t, p, m))
	h := <-got
	assert.Equal(t, "application/json", h.Get("Content-Type"))
	assert.Empty(t, h.Values("Onceward-Id"), "other headers are not sent")
	m.Headers = append(m.Headers, outbox.Header{Key: "content-type", Value: []byte("text/plain")})
	require.NoError(t, one(t, p, m))
	assert.Equal(t, []string{"text/plain"}, (<-got).Values("Content-Type"))
}

func TestAnswers(t *testing.T) {
	for status, want := range map[int]string{
		200: "", 202: "", 204: "", 299: "",
		300: "again", 304: "again", 307: "again",
		400: "final", 410: "final", 413: "final", 415: "final", 422: "final",
		401: "again", 403: "again", 404: "again", 408: "again", 409: "again", 425: "again",
		429: "again", 500: "again", 502: "again", 503: "again", 504: "again",
	} {
		endpoint, hits := receiver(t, answer(status))
		err := one(t, publisher(t, endpoint), message("1"))
		assert.Equal(t, want != "", err != nil, "%d: %v", status, err)
		assert.Equal(t, want == "final", errors.Is(err, outbox.ErrRejected), "%d: %v", status, err)
		assert.EqualValues(t, 1, hits.Load())
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	other, hits := receiver(t, answer(200))
	for _, status := range []int{301, 302, 303, 307, 308} {
		endpoint, _ := receiver(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, status)
		})
		require.Error(t, one(t, publisher(t, endpoint), message("1")))
	}
	assert.Zero(t, hits.Load())
}

// While an endpoint asks for no requests, it gets none, and another endpoint still gets them. This
// includes final answers: RFC 9110 has 413 with Retry-After for an endpoint that is full.
func TestRetryAfterIsHonored(t *testing.T) {
	for status, final := range map[int]bool{
		http.StatusServiceUnavailable: false, http.StatusTooManyRequests: false,
		http.StatusRequestEntityTooLarge: true, http.StatusGone: true,
	} {
		busy, hits := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(status)
		})
		other, others := receiver(t, answer(200))
		p := publisher(t, busy, other)
		for n := range 3 {
			err := one(t, p, message("1"))
			require.Error(t, err)
			assert.Equal(t, final && n == 0, errors.Is(err, outbox.ErrRejected), "%d", status)
		}
		assert.EqualValues(t, 1, hits.Load(), "%d", status)
		assert.EqualValues(t, 3, others.Load(), "%d", status)
	}
}

// Of a long answer only the beginning is read, and an error shows less of it.
func TestAnswerIsBounded(t *testing.T) {
	var written atomic.Int64
	endpoint, _ := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		for {
			n, err := w.Write(bytes.Repeat([]byte("x"), 32<<10))
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	})
	err := one(t, publisher(t, endpoint), message("1"))
	require.ErrorContains(t, err, "500 Internal Server Error")
	assert.Less(t, len(err.Error()), 400)
	assert.Less(t, written.Load(), int64(16<<20), "sockets hold some of it")
}

// hang waits until the test ends, or the client has gone.
func hang(t *testing.T) http.HandlerFunc {
	t.Helper()
	return func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // then the server notices a client that goes
		<-r.Context().Done()
	}
}

func TestTimeout(t *testing.T) {
	endpoint, _ := receiver(t, hang(t))
	p, err := webhookpub.New(webhookpub.Config{Endpoints: to(endpoint),
		Client: &http.Client{Timeout: 20 * time.Millisecond}})
	require.NoError(t, err)
	require.ErrorContains(t, one(t, p, message("1")), "Client.Timeout exceeded")
}

func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	there := hang(t)
	endpoint, _ := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		there(w, r)
	})
	results := publisher(t, endpoint).Publish(ctx, []outbox.Message{message("1")})
	require.Len(t, results, 1)
	require.ErrorIs(t, results[0], context.Canceled)
}

func TestSeveralEndpoints(t *testing.T) {
	good, hits := receiver(t, answer(200))
	down, _ := receiver(t, answer(500))
	gone, _ := receiver(t, answer(410))
	for name, tt := range map[string]struct {
		to    []webhookpub.Endpoint
		final bool
	}{
		"one is down": {[]webhookpub.Endpoint{down, good}, false},
		"one is gone": {[]webhookpub.Endpoint{gone, good}, true},
		"both":        {[]webhookpub.Endpoint{gone, down, good}, false},
	} {
		err := one(t, publisher(t, tt.to...), message("1"))
		require.Error(t, err, name)
		assert.Equal(t, tt.final, errors.Is(err, outbox.ErrRejected), name)
	}
	assert.EqualValues(t, 3, hits.Load(), "the good one gets it all the same")
	require.NoError(t, one(t, publisher(t, good, good), message("1")))
}

func TestEndpointsFail(t *testing.T) {
	require.ErrorContains(t, one(t, publisher(t), message("1")), `topic "t" has no endpoints`)
	p, err := webhookpub.New(webhookpub.Config{
		Endpoints: func(_ context.Context, topic string) ([]webhookpub.Endpoint, error) {
			assert.Equal(t, "t", topic)
			return nil, outbox.Reject(errNo)
		}})
	require.NoError(t, err)
	require.ErrorIs(t, one(t, p, message("1")), outbox.ErrRejected)
	assert.Empty(t, p.Publish(t.Context(), nil))
}

// An endpoint that cannot be used is tried again: somebody may repair it. No error shows a secret.
func TestBadEndpoint(t *testing.T) {
	good, hits := receiver(t, answer(200))
	for name, e := range map[string]webhookpub.Endpoint{
		"URL":           {URL: "http://a b/hidden", Secrets: good.Secrets},
		"no host":       {URL: "hidden", Secrets: good.Secrets},
		"scheme":        {URL: "ftp://127.0.0.1/hidden", Secrets: good.Secrets},
		"refused":       {URL: "http://127.0.0.1:1/hidden?hidden", Secrets: good.Secrets},
		"no secrets":    {URL: good.URL},
		"short":         {URL: good.URL, Secrets: []string{secret('x', 23)}},
		"long":          {URL: good.URL, Secrets: []string{secret('x', 65)}},
		"no prefix":     {URL: good.URL, Secrets: []string{strings.Repeat("A", 32)}},
		"not base64":    {URL: good.URL, Secrets: []string{good.Secrets[0], "whsec_hidden!"}},
		"sloppy bits":   {URL: good.URL, Secrets: []string{"whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB="}},
		"a private key": {URL: good.URL, Secrets: []string{"whsk_" + strings.Repeat("A", 44)}},
	} {
		err := one(t, publisher(t, e), message("1"))
		require.Error(t, err, name)
		require.NotErrorIs(t, err, outbox.ErrRejected, name)
		assert.NotContains(t, err.Error(), "hidden", name)
		for _, s := range e.Secrets {
			assert.NotContains(t, err.Error(), s, name)
		}
	}
	assert.Zero(t, hits.Load())
}

// A message is sent when the one of its key before it is acknowledged, and not if that one fails.
func TestOrder(t *testing.T) {
	var got []string // one request at a time: all have one key
	endpoint, _ := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Webhook-Id"))
		if len(got) == 30 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	var messages []outbox.Message
	for i := range 50 {
		m := message(fmt.Sprint(i))
		m.Key = []byte("k")
		messages = append(messages, m)
	}
	results := publisher(t, endpoint).Publish(t.Context(), messages)
	require.Len(t, got, 30)
	for i, err := range results {
		assert.Equal(t, i < 29, err == nil, i)
		assert.True(t, i >= 30 || got[i] == fmt.Sprint(i), "at %d", i)
	}
}

func TestCheck(t *testing.T) {
	p := publisher(t)
	for _, id := range []string{"a", "booked:42_7-\"x\"/~!", strings.Repeat("x", outbox.MaxID)} {
		assert.NoError(t, p.Check(&outbox.Message{ID: id}), id)
	}
	for _, id := range []string{"order.42", "a b", "\u00e4", "a\n"} {
		assert.Error(t, p.Check(&outbox.Message{ID: id}), id)
	}
}
