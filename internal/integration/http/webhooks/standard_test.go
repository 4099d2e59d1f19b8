package webhooks_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter/webhook"
)

// theirs returns the official library with a secret.
func theirs(t testing.TB, secret string) *standardwebhooks.Webhook {
	t.Helper()
	w, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	return w
}

// signedByThem is what the library sends: one signature for each secret, in order.
func signedByThem(t testing.TB, id string, sent time.Time, body []byte,
	secrets ...string) http.Header {
	t.Helper()
	var list []string
	for _, s := range secrets {
		signature, err := theirs(t, s).Sign(id, sent, body)
		require.NoError(t, err)
		list = append(list, signature)
	}
	h := http.Header{}
	h.Set(standardwebhooks.HeaderWebhookID, id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(sent.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(list, " "))
	return h
}

func signedByUs(t testing.TB, id string, sent time.Time, body []byte,
	secrets ...string) http.Header {
	t.Helper()
	h, err := webhook.Sign(id, sent, body, secrets...)
	require.NoError(t, err)
	return h
}

// post sends a delivery over HTTP and returns the status.
func (s *site) post(t testing.TB, h http.Header, body []byte) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/hooks",
		bytes.NewReader(body))
	require.NoError(t, err)
	r.Header = h
	answer, err := s.Client().Do(r)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// message is a random message.
type message struct {
	secret, id string
	body       []byte
}

func draw(rng *rand.Rand, n int) message {
	bytesOf := func(size int) []byte {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	m := message{
		secret: "whsec_" + base64.StdEncoding.EncodeToString(bytesOf(24+rng.IntN(41))),
		id:     fmt.Sprintf("msg_%d-%x", n, bytesOf(rng.IntN(20))),
	}
	switch n % 3 {
	case 0: // a body may have any bytes
		m.body = bytesOf(rng.IntN(3000))
	case 1:
		m.body = []byte(`{"type":"invoice.paid","data":{"name":"Jörg \u00fc` +
			strings.Repeat("x", rng.IntN(3000)) + `"}}`)
	default:
		m.body = []byte(`{"a":"` + strings.Repeat(".", rng.IntN(100)) + `"}` + "\r\n")
	}
	return m
}

// A delivery that the official library signs is received, once. The library verifies a delivery
// that Sign signs.
func TestStandardWebhooksBothWays(t *testing.T) {
	rng, run := rand.New(rand.NewPCG(1, 2)), inMemory(t)
	const messages = 200
	for n := range messages {
		m, now := draw(rng, n), time.Now()
		s := serve(t, run, provider(t, "standard-webhooks", m.secret), nil)
		for range 2 {
			assert.Equal(t, http.StatusOK,
				s.post(t, signedByThem(t, m.id, now, m.body, m.secret), m.body), "theirs, %s", m.id)
		}
		assert.Equal(t, 1, s.total(), "%s had %d effects", m.id, s.total())
		ours := signedByUs(t, m.id, now, m.body, m.secret)
		assert.NoError(t, theirs(t, m.secret).Verify(m.body, ours), "ours, %s", m.id)
		want := signedByThem(t, m.id, now, m.body, m.secret)
		assert.Equal(t, fmt.Sprint(want), fmt.Sprint(ours), "ours %v, theirs %v", ours, want)
		s.Close()
	}
}

// Both refuse the same messages.
func TestStandardWebhooksRefuseTheSame(t *testing.T) {
	const (
		secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
		other  = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYY"
		old    = "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk"
		id     = "msg_1"
	)
	body, now := []byte(`{"type":"invoice.paid"}`), time.Now()
	with := func(h http.Header, change func(http.Header)) http.Header { change(h); return h }
	for name, row := range map[string]struct {
		header http.Header
		body   []byte
		good   bool
	}{
		"as it should be": {signedByThem(t, id, now, body, secret), body, true},
		"another secret":  {signedByThem(t, id, now, body, other), body, false},
		"six minutes old": {signedByThem(t, id, now.Add(-6*time.Minute), body, secret),
			body, false},
		"four minutes old": {signedByThem(t, id, now.Add(-4*time.Minute), body, secret),
			body, true},
		"six minutes ahead": {signedByThem(t, id, now.Add(6*time.Minute), body, secret),
			body, false},
		"four minutes ahead": {signedByThem(t, id, now.Add(4*time.Minute), body, secret),
			body, true},
		"another body": {signedByThem(t, id, now, body, secret),
			[]byte(`{"type":"invoice.paid" }`), false},
		"another id": {with(signedByThem(t, id, now, body, secret), func(h http.Header) {
			h.Set("webhook-id", "msg_2")
		}), body, false},
		"another time": {with(signedByThem(t, id, now, body, secret), func(h http.Header) {
			h.Set("webhook-timestamp", strconv.FormatInt(now.Unix()+1, 10))
		}), body, false},
		"no signature": {with(signedByThem(t, id, now, body, secret), func(h http.Header) {
			h.Del("webhook-signature")
		}), body, false},
		"no time": {with(signedByThem(t, id, now, body, secret), func(h http.Header) {
			h.Del("webhook-timestamp")
		}), body, false},
		"a time that is none": {with(signedByThem(t, id, now, body, secret), func(h http.Header) {
			h.Set("webhook-timestamp", "now")
		}), body, false},
		"v2 alone": {with(signedByThem(t, id, now, body, secret), func(h http.Header) {
			h.Set("webhook-signature", "v2"+h.Get("webhook-signature")[2:])
		}), body, false},
		"rotated, new is first": {signedByThem(t, id, now, body, secret, old), body, true},
		"rotated, old is first": {signedByThem(t, id, now, body, old, secret), body, true},
		"rotated away":          {signedByThem(t, id, now, body, old, other), body, false},
		"v1a beside, by us": {signedByUs(t, id, now,
			body, "whsk_nWGxne/9WmC6hEr0kuwsxERJxXN7MmkZcDusAxyuf2A=", secret), body, true},
		"v1a alone, by us": {signedByUs(t, id, now,
			body, "whsk_nWGxne/9WmC6hEr0kuwsxERJxXN7MmkZcDusAxyuf2A="), body, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := theirs(t, secret).Verify(row.body, row.header)
			assert.Equal(t, row.good, err == nil, "theirs: %v", err)
			s := serve(t, inMemory(t), provider(t, "standard-webhooks", secret), nil)
			want := http.StatusUnauthorized
			if row.good {
				want = http.StatusOK
			}
			assert.Equal(t, want, s.post(t, row.header, row.body), "ours")
			got := s.total()
			assert.Equal(t, row.good, got != 0, "%d effects", got)
		})
	}
}

// While a secret is rotated, a receiver knows both. It accepts a delivery that is signed with
// either, or with both. The id is one event under all of them.
func TestStandardWebhooksRotation(t *testing.T) {
	const (
		old  = "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk"
		next = "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3"
	)
	body := []byte(`{"type":"invoice.paid"}`)
	s := serve(t, inMemory(t), provider(t, "standard-webhooks", next, old), nil)
	for i, secrets := range [][]string{{old}, {old, next}, {next, old}, {next}} {
		sent := time.Now().Add(time.Duration(i) * time.Second) // each attempt has its own time
		assert.Equal(t, http.StatusOK,
			s.post(t, signedByThem(t, "msg_1", sent, body, secrets...),
				body), "signed with %d secrets", len(secrets))
	}
	assert.Equal(t, 1, s.total(), "one event had effects")
}
