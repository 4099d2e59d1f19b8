package webhook_test

import (
	"crypto/hmac"
	"encoding/base64"
	"hash"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter/webhook"
)

// base64MAC computes a signature without the package.
func base64MAC(hash func() hash.Hash, key, text string) string {
	mac := hmac.New(hash, []byte(key))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// built returns a provider, and insists that its preset returned no error.
func built(t testing.TB) func(webhook.Provider, error) webhook.Provider {
	t.Helper()
	return func(p webhook.Provider, err error) webhook.Provider {
		require.NoError(t, err)
		return p
	}
}

func wantRefused(t *testing.T, p webhook.Provider, m *webhook.Message, what string) {
	t.Helper()
	_, err := p.Verify(m)
	assert.ErrorIs(t, err, webhook.ErrSignature, what)
}

func wantInputError(t *testing.T, err error, what string) {
	t.Helper()
	assert.ErrorAs(t, err, new(*dedup.InputError), what)
}

// A change of the body, of the signature or a second signature header is refused.
func wantAnyChangeRefused(t *testing.T, p webhook.Provider, header string,
	message func() *webhook.Message) {
	t.Helper()
	for i := range message().Body {
		m := message()
		m.Body[i] ^= 1
		_, err := p.Verify(m)
		assert.Error(t, err, "byte %d", i)
	}
	m := message()
	m.Body = nil
	wantRefused(t, p, m, "no body")
	for what, change := range map[string]func(http.Header){
		"missing":   func(h http.Header) { h.Del(header) },
		"empty":     func(h http.Header) { h.Set(header, "") },
		"twice":     func(h http.Header) { h.Add(header, h.Get(header)) },
		"cut short": func(h http.Header) { h.Set(header, h.Get(header)[:8]) },
		"no base64": func(h http.Header) { h.Set(header, "!"+h.Get(header)[1:]) },
		"another":   func(h http.Header) { h.Set(header, strings.ToUpper(h.Get(header))) },
	} {
		m := message()
		change(m.Header)
		wantRefused(t, p, m, what)
		if what != "another" {
			assert.ErrorIs(t, p.Precheck(m.Header, m.Now), webhook.ErrSignature, what)
		}
	}
}

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}
