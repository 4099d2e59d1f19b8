package webhook_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter/webhook"
)

// The message is from the tests of Square's SDKs (square-go-sdk, webhooks/client/client_test.go).
const (
	squareURL  = "https://webhook.site/679a4f3a-dcfa-49ee-bac5-9d0edad886b9"
	squareKey  = "Ibxx_5AKakO-3qeNVR61Dw"
	squareBody = `{"merchant_id":"MLEFBHHSJGVHD","type":"webhooks.test_notification",` +
		`"event_id":"ac3ac95b-f97d-458c-a6e6-18981597e05f",` +
		`"created_at":"2022-07-13T20:30:59.037339943Z",` +
		`"data":{"type":"webhooks","id":"bc368e64-01aa-407e-b46e-3231809b1129"}}`
	squareSignature = "GF4YkrJgGBDZ9NIYbNXBnMzqb2HoL4RW/S6vkZ9/2N4="
	squareHeader    = "X-Square-Hmacsha256-Signature"
)

func squareMessage() *webhook.Message {
	return &webhook.Message{Header: headers(squareHeader, squareSignature),
		Body: []byte(squareBody), Now: time.Unix(fuzzNow, 0)}
}

func TestSquareVector(t *testing.T) {
	p := built(t)(webhook.Square(squareURL, "another", squareKey))
	require.NoError(t, p.Precheck(squareMessage().Header, time.Now()))
	got, err := p.Verify(squareMessage())
	require.NoError(t, err)
	assert.Equal(t, webhook.Identity{ID: "ac3ac95b-f97d-458c-a6e6-18981597e05f",
		Type: "webhooks.test_notification", Signed: true}, got)
	assert.Equal(t, 24*time.Hour, p.Horizon)
}

func TestSquareAnythingElseIsRefused(t *testing.T) {
	p := built(t)(webhook.Square(squareURL, squareKey))
	wantAnyChangeRefused(t, p, squareHeader, squareMessage)
	for _, url := range []string{squareURL + "/", "http" + squareURL[5:], "https://webhook.site/"} {
		wantRefused(t, built(t)(webhook.Square(url, squareKey)), squareMessage(), url)
	}
	wantRefused(t, built(t)(webhook.Square(squareURL, "another")), squareMessage(), "another key")
	m := squareMessage() // a signature of the body alone
	m.Header.Set(squareHeader, base64MAC(sha256.New, squareKey, squareBody))
	wantRefused(t, p, m, "without the URL")
}

func TestSquareWithoutAnID(t *testing.T) {
	p := built(t)(webhook.Square(squareURL, squareKey))
	for _, body := range []string{`{}`, `[]`, `{"event_id":1}`, `{"event_id":"a","event_id":"b"}`} {
		m := squareMessage()
		m.Body = []byte(body)
		m.Header.Set(squareHeader, base64MAC(sha256.New, squareKey, squareURL+body))
		_, err := p.Verify(m)
		wantInputError(t, err, body)
	}
}

func TestSquareNeedsKeysAndAURL(t *testing.T) {
	_, err := webhook.Square("", squareKey)
	wantInputError(t, err, "no URL")
	_, err = webhook.Square(squareURL)
	wantInputError(t, err, "no key")
	_, err = webhook.Square(squareURL, squareKey, "")
	wantInputError(t, err, "an empty key")
}

func FuzzSquare(f *testing.F) {
	p := built(f)(webhook.Square("https://a/", "k"))
	f.Add(base64MAC(sha256.New, "k", `https://a/{"event_id":"1"}`), `{"event_id":"1"}`)
	f.Add("", "{}")
	f.Fuzz(func(t *testing.T, signature, body string) {
		got, err := verified(p, body, map[string]string{squareHeader: signature})
		assert.False(t, err == nil && (got.ID == "" ||
			signature != base64MAC(sha256.New, "k", "https://a/"+body)), "%q %q", signature, body)
	})
}
