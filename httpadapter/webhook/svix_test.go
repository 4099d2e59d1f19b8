package webhook_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter/webhook"
)

// svix renames headers of Standard Webhooks to the names that senders hosted by Svix use.
func svix(h http.Header, names ...string) http.Header {
	out := h.Clone()
	for _, name := range names {
		out["Svix-"+name] = out["Webhook-"+name]
		delete(out, "Webhook-"+name)
	}
	return out
}

// Senders hosted by Svix used to be refused. The same values under svix-id, svix-timestamp and
// svix-signature are the same message. A mix of both sets of names is refused, whatever it says.
func TestSvixNames(t *testing.T) {
	p, err := webhook.StandardWebhooks(secret)
	require.NoError(t, err)
	now, body := time.Unix(1_700_000_000, 0), []byte(`{"type":"invoice.paid"}`)
	signed, err := webhook.Sign("msg_1", now, body, secret)
	require.NoError(t, err)
	verify := func(h http.Header) (webhook.Identity, error) {
		return p.Verify(&webhook.Message{Header: h, Body: body, Now: now})
	}
	want, err := verify(signed)
	require.NoError(t, err)
	got, err := verify(svix(signed, "Id", "Timestamp", "Signature"))
	require.NoError(t, err)
	assert.Equal(t, want, got)

	forged := svix(signed, "Id", "Timestamp", "Signature")
	forged["Svix-Id"] = []string{"msg_2"}
	_, err = verify(forged)
	assert.ErrorIs(t, err, webhook.ErrSignature)

	both := svix(signed, "Id", "Timestamp", "Signature")
	for name, values := range signed {
		both[name] = values
	}
	another := signed.Clone()
	another.Set("Svix-Id", "msg_2")
	for name, h := range map[string]http.Header{
		"signature": svix(signed, "Signature"), "id": svix(signed, "Id"),
		"time": svix(signed, "Timestamp"), "both": both, "another id": another,
	} {
		_, err := verify(h)
		var input *dedup.InputError
		assert.ErrorAs(t, err, &input, name)
	}
}

// While a sender rotates its secret it signs with both secrets. One signature that matches is
// enough, in any order. Without a match the message is refused.
func TestHMACDuringARotation(t *testing.T) {
	body, now := []byte(`{"id":"evt_1"}`), time.Unix(1_700_000_000, 0)
	known, other := hexMAC("known", string(body)), hexMAC("other", string(body))
	many := strings.Repeat("v1,"+other+" ", 16) + "v1," + known
	for _, row := range []struct {
		prefix, header string
		ok             bool
	}{
		{"v1,", "v1," + known, true},
		{"v1,", "v1," + other + " v1," + known, true},
		{"v1,", "v1," + known + " v1," + other, true},
		{"v1,", "v1a,xyz v1," + known, true},
		{"v1,", "v1," + other + " v1," + other, false},
		{"v1,", "v1," + other + " v2," + known, false},
		{"v1,", many, false},
		{"v1,", " ", false},
		{"v1,", "v1, ", false},
		{"sha256=", "sha256=" + other + ",sha256=" + known, true},
		{"sha256=", "sha256=" + other + ", sha256=" + known, true},
		{"", other + " " + known, true},
		{"", other + "," + known, true},
		{"HMAC ", "HMAC " + known, true},
	} {
		p, err := webhook.HMAC(webhook.HMACConfig{
			Name: "own", Secrets: []string{"known"}, Header: "X-Signature", Prefix: row.prefix,
			IDMember: "id", Horizon: time.Hour,
		})
		require.NoError(t, err)
		_, err = p.Verify(&webhook.Message{Header: http.Header{"X-Signature": {row.header}},
			Body: body, Now: now})
		if row.ok {
			assert.NoError(t, err, "%q %q", row.prefix, row.header)
		} else {
			assert.ErrorIs(t, err, webhook.ErrSignature, "%q %q", row.prefix, row.header)
		}
	}
}
