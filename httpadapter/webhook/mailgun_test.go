package webhook_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter/webhook"
)

const mailgunKey = "signing key"

// mailgunBody has the form that Mailgun's page on securing webhooks shows. Neither that page nor
// mailgun-go has a signature with its key, so hexMAC makes one, like the tests of mailgun-go.
func mailgunBody(sent int64, token, id string) string {
	timestamp := strconv.FormatInt(sent, 10)
	return fmt.Sprintf(`{"signature":{"token":%q,"timestamp":%q,"signature":%q},`+
		`"event-data":{"id":%q,"event":"delivered"}}`, token, timestamp,
		hexMAC(mailgunKey, timestamp+token), id)
}

func mailgunMessage(body string) *webhook.Message {
	return &webhook.Message{Body: []byte(body), Now: time.Unix(fuzzNow, 0)}
}

func TestMailgunVerifies(t *testing.T) {
	p := built(t)(webhook.Mailgun("old", mailgunKey))
	want := webhook.Identity{ID: "E1", Type: "delivered", Signed: true,
		Sent: time.Unix(fuzzNow-60, 0)}
	body := mailgunBody(fuzzNow-60, "t1", "E1")
	got, err := p.Verify(mailgunMessage(body))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	got, err = p.Verify(mailgunMessage(strings.ReplaceAll(body,
		fmt.Sprintf(`"%d"`, fuzzNow-60), strconv.Itoa(fuzzNow-60)))) // an int, as on the page
	require.NoError(t, err)
	assert.Equal(t, want, got)
	parent := strings.Replace(mailgunBody(fuzzNow, "t2", "E2"), `"signature":"`,
		`"signature":"`+hexMAC("of the subaccount", strconv.Itoa(fuzzNow)+"t2")+
			`","parent-signature":"`, 1)
	got, err = p.Verify(mailgunMessage(parent))
	require.NoError(t, err)
	assert.Equal(t, "E2", got.ID)
}

func TestMailgunAnythingElseIsRefused(t *testing.T) {
	p := built(t)(webhook.Mailgun(mailgunKey))
	body := mailgunBody(fuzzNow, "t1", "E1")
	signature := hexMAC(mailgunKey, strconv.Itoa(fuzzNow)+"t1")
	for what, body := range map[string]string{
		"another token": strings.Replace(body, `"t1"`, `"t2"`, 1),
		"another time":  strings.Replace(body, strconv.Itoa(fuzzNow), strconv.Itoa(fuzzNow+1), 1),
		"another one": strings.Replace(body, signature,
			hexMAC("guess", strconv.Itoa(fuzzNow)+"t1"), 1),
		"cut short":    strings.Replace(body, signature, signature[:20], 1),
		"no signature": `{"event-data":{"id":"E1","event":"delivered"}}`,
		"no token":     strings.Replace(mailgunBody(fuzzNow, "", "E1"), `"token":"",`, "", 1),
		"empty":        "", "no object": "[]",
	} {
		wantRefused(t, p, mailgunMessage(body), what)
	}
	twice := strings.Replace(body, `{"token"`, `{"token":"t0","token"`, 1)
	_, err := p.Verify(mailgunMessage(twice))
	wantInputError(t, err, "token twice")
	_, err = p.Verify(mailgunMessage(strings.Replace(body, `"id":"E1",`, "", 1)))
	wantInputError(t, err, "no id")
}

// Retries may have the time of the first attempt for eight hours. Five minutes ahead are allowed.
func TestMailgunTimes(t *testing.T) {
	p := built(t)(webhook.Mailgun(mailgunKey))
	for off, want := range map[time.Duration]error{-8*time.Hour - 5*time.Minute: nil,
		-8*time.Hour - 5*time.Minute - time.Second: webhook.ErrStale, 5 * time.Minute: nil,
		5*time.Minute + time.Second: webhook.ErrStale} {
		_, err := p.Verify(mailgunMessage(mailgunBody(fuzzNow+int64(off/time.Second), "t", "E")))
		assert.ErrorIs(t, err, want, off)
	}
}

// The event is not signed, so a captured token must not be used for another event.
func TestMailgunTokenSignsOneEvent(t *testing.T) {
	p := built(t)(webhook.Mailgun(mailgunKey))
	_, err := p.Verify(mailgunMessage(mailgunBody(fuzzNow, "t1", "E1")))
	require.NoError(t, err)
	wantRefused(t, p, mailgunMessage(mailgunBody(fuzzNow, "t1", "E2")), "another event")
	_, err = p.Verify(mailgunMessage(mailgunBody(fuzzNow, "t1", "E1")))
	require.NoError(t, err, "a retry")
	_, err = p.Verify(mailgunMessage(mailgunBody(fuzzNow, "t2", "E1")))
	require.NoError(t, err, "a retry with a token of its own")
}

func TestMailgunNeedsKeys(t *testing.T) {
	for what, keys := range map[string][]string{"none": nil, "empty": {mailgunKey, ""}} {
		_, err := webhook.Mailgun(keys...)
		wantInputError(t, err, what)
	}
}

func FuzzMailgun(f *testing.F) {
	p := built(f)(webhook.Mailgun(mailgunKey))
	f.Add(mailgunBody(fuzzNow, "t", "E"))
	f.Add(`{"signature":{"timestamp":1700000000,"token":"t"},"event-data":{}}`)
	f.Add("{}")
	f.Fuzz(func(t *testing.T, body string) {
		got, err := p.Verify(mailgunMessage(body))
		assert.False(t, err == nil && (got.ID == "" || got.Sent.IsZero()), body)
	})
}
