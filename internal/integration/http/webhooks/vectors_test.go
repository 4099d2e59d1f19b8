package webhooks_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter/webhook"
)

// vector is a message of testdata/vectors.json; testdata/make_vectors.py says who signed it.
type vector struct {
	Name, Provider   string
	Secrets, Private []string
	Now              int64
	Header           map[string]string
	Body             []byte
	ID, Type         string
}

func vectors(t *testing.T) (list []vector) {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	require.NoError(t, err, "vectors")
	require.Len(t, list, 100, "vectors")
	return list
}

func (v vector) message() *webhook.Message {
	h := http.Header{}
	for name, value := range v.Header {
		h.Set(name, value)
	}
	return &webhook.Message{Header: h, Body: bytes.Clone(v.Body), Now: time.Unix(v.Now, 0)}
}

// signature is the header that has it.
func (v vector) signature(t *testing.T) string {
	t.Helper()
	for name := range v.Header {
		if strings.Contains(strings.ToLower(name), "signature") {
			return name
		}
	}
	t.Fatalf("%s: no signature", v.Name)
	return ""
}

// Signatures by openssl and Python are accepted: the v1 and v1a of Standard Webhooks, Stripe's and
// GitHub's published algorithms.
func TestVectorsOfOthers(t *testing.T) {
	count := map[string]int{}
	for _, v := range vectors(t) {
		p := provider(t, v.Provider, v.Secrets...)
		got, err := p.Verify(v.message())
		assert.NoError(t, err, "%s, %s: %+v", v.Provider, v.Name, got)
		assert.Equal(t, v.ID, got.ID, "%s, %s: %+v", v.Provider, v.Name, got)
		assert.Equal(t, v.Type, got.Type, "%s, %s: %+v", v.Provider, v.Name, got)
		count[v.Provider]++
		if len(v.Private) > 0 {
			count["signed by us, too"]++
			h, err := webhook.Sign(v.ID, time.Unix(v.Now, 0), v.Body, v.Private...)
			assert.NoError(t, err, "%s: Sign makes %v", v.Name, h)
			assert.Equal(t, v.Header["webhook-signature"], h.Get("webhook-signature"),
				"%s: Sign makes %v", v.Name, h)
		}
	}
	for name, n := range map[string]int{"standard-webhooks": 72, "stripe": 18, "github": 10,
		"signed by us, too": 72} {
		assert.Equal(t, n, count[name], "%d vectors of %s", count[name], name)
	}
}

// Messages with a changed bit in the signature or in the body, another key, or the signature of
// another message are refused.
func TestVectorsOfOthersChanged(t *testing.T) {
	list := vectors(t)
	for i, v := range list {
		p, name := provider(t, v.Provider, v.Secrets...), v.signature(t)
		refused := func(what string, p webhook.Provider, change func(*webhook.Message)) {
			t.Helper()
			m := v.message()
			change(m)
			got, err := p.Verify(m)
			assert.ErrorIs(t, err, webhook.ErrSignature, "%s, %s, %s: %+v", v.Provider, v.Name,
				what, got)
		}
		for at := 0; at < len(v.Body); at += 1 + len(v.Body)/20 {
			refused("a bit of the body", p, func(m *webhook.Message) {
				m.Body[at] ^= 1 << (at % 8)
			})
		}
		refused("a bit of the signature", p, func(m *webhook.Message) {
			m.Header.Set(name, flipped(t, v, m.Header.Get(name)))
		})
		refused("a byte more", p, func(m *webhook.Message) { m.Body = append(m.Body, 0) })
		for _, w := range list {
			if w.Provider != v.Provider || w.Secrets[0] == v.Secrets[0] ||
				strings.HasSuffix(v.Name, "rolled") {
				continue // it is signed with both secrets
			}
			refused("another's key", provider(t, w.Provider, w.Secrets...),
				func(*webhook.Message) {})
			break
		}
		if w := list[(i+1)%len(list)]; w.Provider == v.Provider && !bytes.Equal(w.Body, v.Body) {
			refused("another's signature", p, func(m *webhook.Message) {
				m.Header.Set(name, w.Header[name])
			})
		}
	}
}

// flipped is a header with one byte of its last signature changed.
func flipped(t *testing.T, v vector, header string) string {
	t.Helper()
	if v.Provider != "standard-webhooks" { // ends in hex, of which one digit is enough
		if last := len(header) - 1; header[last] == '0' {
			return header[:last] + "1"
		}
		return header[:len(header)-1] + "0"
	}
	version, text, _ := strings.Cut(header, ",")
	data, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	data[0] ^= 1
	return version + "," + base64.StdEncoding.EncodeToString(data)
}
