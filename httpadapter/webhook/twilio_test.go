package webhook_test

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter/webhook"
)

// The messages are from the tests of twilio-go v1.31.0 (client/request_validator_test.go).
const (
	twilioURL   = "https://mycompany.com/myapp.php"
	twilioQuery = "foo=1&bar=2"
	twilioToken = "12345"
	twilioForm  = "Digits=1234&CallSid=CA1234567890ABCDE&To=%2B18005551212&Caller=%2B14158675309" +
		"&From=%2B14158675309&ReasonConferenceEnded=test&Reason=Participant"
	twilioJSON   = `{"property": "value", "boolean": true}`
	twilioHash   = "0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
	twilioHeader = "X-Twilio-Signature"
)

func twilioMessage(query, signature, body string) *webhook.Message {
	return &webhook.Message{Header: headers(twilioHeader, signature), Query: query,
		Body: []byte(body), Now: time.Unix(fuzzNow, 0)}
}

func twilioFormMessage() *webhook.Message {
	return twilioMessage(twilioQuery, "vOEb5UThFn24KEfnOFLQY2AE5FY=", twilioForm)
}

func twilioJSONMessage() *webhook.Message {
	return twilioMessage(twilioQuery+"&bodySHA256="+twilioHash, "a9nBmqA0ju/hNViExpshrM61xv4=",
		twilioJSON)
}

func TestTwilioVectors(t *testing.T) {
	p := built(t)(webhook.Twilio(twilioURL, "another", twilioToken))
	ids := map[string]bool{}
	for what, m := range map[string]*webhook.Message{"form": twilioFormMessage(),
		"JSON": twilioJSONMessage(), "JSON alone": twilioMessage("bodySHA256="+twilioHash,
			"y77kIzt2vzLz71DgmJGsen2scGs=", twilioJSON),
		"short form": twilioMessage(twilioQuery, "NBdBDr/T/lgjI+tlgpXjKZQZs/k=",
			"property=value&boolean=true")} {
		require.NoError(t, p.Precheck(m.Header, m.Now), what)
		got, err := p.Verify(m)
		require.NoError(t, err, what)
		assert.True(t, got.Signed && got.ID != "" && !ids[got.ID], what)
		ids[got.ID] = true
	}
	_, err := built(t)(webhook.Twilio("http://mycompany.com/myapp.php", twilioToken)).Verify(
		twilioMessage(twilioQuery, "n2xBNyzSW7rfYStDtOFiFMv7qNo=", twilioForm))
	require.NoError(t, err, "http")
}

func TestTwilioAnythingElseIsRefused(t *testing.T) {
	p := built(t)(webhook.Twilio(twilioURL, twilioToken))
	wantAnyChangeRefused(t, p, twilioHeader, twilioFormMessage)
	wantAnyChangeRefused(t, p, twilioHeader, twilioJSONMessage)
	for _, query := range []string{"", "foo=1&bar=3", "bar=2&foo=1", "%zz",
		twilioQuery + "&bodySHA256=" + twilioHash} {
		m := twilioFormMessage()
		m.Query = query
		wantRefused(t, p, m, query)
	}
	m := twilioJSONMessage()
	m.Query += "&bodySHA256=" + twilioHash
	wantRefused(t, p, m, "two digests")
	for _, url := range []string{"https://mycompany.com/", "https://other.com/myapp.php",
		"http://mycompany.com/myapp.php"} {
		wantRefused(t, built(t)(webhook.Twilio(url, twilioToken)), twilioFormMessage(), url)
	}
	wantRefused(t, built(t)(webhook.Twilio(twilioURL, "another")), twilioFormMessage(), "token")
}

// Twilio signs some URLs with the port and some without. Both are the same event.
func TestTwilioPorts(t *testing.T) {
	for signed, url := range map[string]string{"https://a.example:443/x": "https://a.example/x",
		"https://a.example/x":     "https://a.example:8443/x",
		"http://a.example:80/x":   "http://a.example/x",
		"https://u:p@a.example/x": "https://u:p@a.example:443/x",
		"https://a.example:443":   "https://a.example"} {
		p := built(t)(webhook.Twilio(url, twilioToken))
		m := twilioMessage("", base64MAC(sha1.New, twilioToken, signed+"A1"), "A=1")
		got, err := p.Verify(m)
		require.NoError(t, err, signed)
		same, err := p.Verify(twilioMessage("", base64MAC(sha1.New, twilioToken, url+"A1"), "A=1"))
		require.NoError(t, err, url)
		assert.Equal(t, got.ID, same.ID)
	}
}

func TestTwilioSharedKey(t *testing.T) {
	p := built(t)(webhook.Twilio(twilioURL, twilioToken, "shared"))
	signature := base64MAC(sha256.New, "shared", twilioURL+"MessageStatussent")
	got, err := p.Verify(twilioMessage("", signature, "MessageStatus=sent"))
	require.NoError(t, err)
	assert.Equal(t, "sent", got.Type)
}

// Different bodies with the same signed text are the same event, so none of them runs again.
func TestTwilioOneEventForASignedText(t *testing.T) {
	p := built(t)(webhook.Twilio(twilioURL, twilioToken))
	signature := base64MAC(sha1.New, twilioToken, twilioURL+"A1Bx y")
	first, err := p.Verify(twilioMessage("", signature, "A=1&B=x+y"))
	require.NoError(t, err)
	for _, body := range []string{"B=x%20y&A=1", "A=1&B=x+y&B=x+y", "A1=Bx+y", "%41=1&B=x+y"} {
		again, err := p.Verify(twilioMessage("", signature, body))
		require.NoError(t, err, body)
		assert.Equal(t, first.ID, again.ID, body)
	}
}

func TestTwilioTypes(t *testing.T) {
	p := built(t)(webhook.Twilio(twilioURL, twilioToken))
	for body, want := range map[string]string{"CallStatus=busy": "busy",
		"EventType=onMessageAdded": "onMessageAdded", "Other=1": ""} {
		name, value, _ := strings.Cut(body, "=")
		signature := base64MAC(sha1.New, twilioToken, twilioURL+name+value)
		got, err := p.Verify(twilioMessage("", signature, body))
		require.NoError(t, err)
		assert.Equal(t, want, got.Type)
	}
}

func TestTwilioNeedsTokensAndAURL(t *testing.T) {
	for _, url := range []string{"", "a.example/x", "ftp://a.example/", "https:///x",
		"https://a.example/?a=b", "https://a.example/#rc=2", "https://a.example/%zz"} {
		_, err := webhook.Twilio(url, twilioToken)
		wantInputError(t, err, url)
	}
	_, err := webhook.Twilio(twilioURL)
	wantInputError(t, err, "no token")
	_, err = webhook.Twilio(twilioURL, twilioToken, "")
	wantInputError(t, err, "an empty token")
}

// The receiver passes the query to Verify unchanged.
func TestServersQueryIsVerified(t *testing.T) {
	p := built(t)(webhook.Twilio(twilioURL, twilioToken))
	e := newEndpoint(t, claimed(t, dedup.Memory(10), nil), p, nil, webhook.Config{})
	for range 2 {
		m := twilioJSONMessage()
		r := httptest.NewRequest(http.MethodPost, "/hooks?"+m.Query, strings.NewReader(twilioJSON))
		r.Header = m.Header
		wantOK(t, send(e, r))
	}
	e.wantRuns(t, 1)
}

func FuzzTwilio(f *testing.F) {
	p := built(f)(webhook.Twilio("https://a.example/", "k"))
	sum := sha256.Sum256([]byte("{}"))
	query := "bodySHA256=" + hex.EncodeToString(sum[:])
	f.Add(query, base64MAC(sha1.New, "k", "https://a.example/?"+query), "{}")
	f.Add("", base64MAC(sha1.New, "k", "https://a.example/A1B2"), "A=1&B=2")
	f.Add("%", "", ";")
	f.Fuzz(func(t *testing.T, query, signature, body string) {
		got, err := p.Verify(twilioMessage(query, signature, body))
		assert.False(t, err == nil && (!got.Signed || len(got.ID) != 43), "%q %q", query, body)
	})
}
