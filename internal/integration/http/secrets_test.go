package http_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter"
)

// denied headers are about one client, one connection or one moment, and are not stored.
var denied = []string{
	"Set-Cookie", "Set-Cookie2", "Authorization", "Proxy-Authorization", "WWW-Authenticate",
	"Proxy-Authenticate",
	"Authentication-Info", "Proxy-Authentication-Info", "Clear-Site-Data", "Keep-Alive",
	"Proxy-Connection", "TE", "Upgrade", "Age",
	"X-Session", // no configuration asks for it
}

const inBody, inHeader = "body-of-the-answer", "receipt-of-the-answer"

// telling answers with a secret in each header that is denied, and some that are kept.
func telling(*site) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range denied {
			w.Header().Set(name, secretIn(name))
		}
		w.Header().Set("X-Receipt", inHeader)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, strings.Repeat(inBody, 10))
	}
}

func secretIn(name string) string { return "secret-in-" + strings.ToLower(name) }

// TestStoredBytes reads all that a store has of a request, and looks for what must not be there.
func TestStoredBytes(t *testing.T) {
	const key, tenant, card, bearer = "the-key-of-the-client", "tenant-of-the-key",
		"4242424242424242", "bearer-of-the-request"
	seal := httpadapter.Config{
		Seal:           [][]byte{bytes.Repeat([]byte{7}, 32)},
		FingerprintKey: &httpadapter.FingerprintKey{Version: 1, Key: bytes.Repeat([]byte{8}, 32)},
	}
	always := []string{key, tenant, card, bearer}
	for _, name := range denied {
		always = append(always, secretIn(name))
	}
	for _, row := range []struct {
		name         string
		cfg          httpadapter.Config
		there, never []string
	}{
		{"in clear", httpadapter.Config{}, []string{inBody, inHeader}, always},
		{"sealed", seal, nil, append([]string{inBody, inHeader}, always...)},
	} {
		t.Run(row.name, func(t *testing.T) {
			each(t, stores, func(t *testing.T, b backend) {
				p := b.open(t, day, lease)
				cfg := row.cfg
				cfg.Headers = []string{"X-Receipt"}
				s := newSite(t, p, "stored", cfg, telling)
				o := order(`Idempotency-Key: "`+key+`"`, "Authorization: Bearer "+bearer,
					"Cookie: session="+bearer).by(tenant).with(card)
				first := s.send(o)
				for _, name := range denied {
					assert.Equal(t, secretIn(name), first.header.Get(name),
						"the first answer has no %s: %v", name, first.header)
				}
				again := s.send(o)
				for _, name := range denied {
					assert.Empty(t, again.header.Get(name), "%s is replayed", name)
				}
				assert.Equal(t, "true", again.header.Get("Idempotent-Replayed"),
					"replayed: %d %q %v", again.status, again.body, again.header)
				assert.Equal(t, first.body, again.body, "replayed: %d %q %v", again.status,
					again.body, again.header)
				assert.Equal(t, inHeader, again.header.Get("X-Receipt"), "replayed: %d %q %v",
					again.status, again.body, again.header)
				p.wantStored(t, row.there, row.never)
			})
		})
	}
}

// wantStored searches the raw store, for bytes as they are, in hexadecimal and in base64.
func (p *fixture) wantStored(t *testing.T, there, never []string) {
	t.Helper()
	raw, err := p.raw(t.Context())
	require.NoError(t, err)
	var all strings.Builder
	for _, value := range raw {
		all.WriteString(value)
	}
	require.NotZero(t, all.Len(), "the store is empty")
	for _, want := range there {
		assert.Contains(t, all.String(), want,
			"%q is not in the %d bytes of the store, so this test does not see what is", want,
			all.Len())
	}
	for _, secret := range never {
		for _, form := range forms(secret) {
			for where, value := range raw {
				assert.NotContains(t, strings.ToLower(value), strings.ToLower(form),
					"%q is in %s, as %s", secret, where, form)
			}
		}
	}
}

// forms are the forms that a secret may be written in. The first and the last characters of base64
// depend on the bytes next to the secret.
func forms(secret string) []string {
	all := []string{secret, hex.EncodeToString([]byte(secret)), fmt.Sprintf("%d", []byte(secret))}
	for shift := range 3 {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), secret...))
		all = append(all, text[4:len(text)-4])
	}
	return all
}
