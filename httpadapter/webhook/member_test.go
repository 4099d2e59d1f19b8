package webhook_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter/webhook"
)

// signed makes a signed delivery with the given body, for each provider that reads its body.
var signed = map[string]func(t testing.TB, body string) *http.Request{
	"standard-webhooks": func(t testing.TB, body string) *http.Request {
		return standard(t, "evt_1", body)
	},
	"stripe": func(_ testing.TB, body string) *http.Request {
		now := strconv.FormatInt(time.Now().Unix(), 10)
		return request(http.Header{"Stripe-Signature": {"t=" + now + ",v1=" +
			hexMAC(secret, now+"."+body)}}, body)
	},
	"slack": func(_ testing.TB, body string) *http.Request {
		now := strconv.FormatInt(time.Now().Unix(), 10)
		return request(http.Header{
			"X-Slack-Request-Timestamp": {now},
			"X-Slack-Signature":         {"v0=" + hexMAC(secret, "v0:"+now+":"+body)},
		}, body)
	},
	"acme": func(_ testing.TB, body string) *http.Request {
		return request(http.Header{"X-Sig": {hexMAC(secret, body)}}, body)
	},
}

func signedBy(t testing.TB, name string) webhook.Provider {
	t.Helper()
	if name != "acme" {
		return provider(t, name, secret)
	}
	p, err := webhook.HMAC(webhook.HMACConfig{
		Name: name, Secrets: []string{secret}, Header: "X-Sig", IDMember: "id", TypeMember: "type",
		Horizon: time.Hour,
	})
	require.NoError(t, err)
	return p
}

// The members of a body are read one by one, so an odd member does not hide another one. If the
// type of an event cannot be read, the event is not acknowledged as unwanted.
func TestOddBodiesLoseNoEvent(t *testing.T) {
	const run, skip, refuse = "run", "skip", "refuse"
	for _, row := range []struct{ provider, body, want, eventType string }{
		{"standard-webhooks", `{"type":"paid"}`, run, "paid"},
		{"standard-webhooks", `{"type":"other"}`, skip, ""},
		{"standard-webhooks", `{"id":7,"type":"paid"}`, run, "paid"},
		{"standard-webhooks", `{"id":{"a":[1,"]}"]},"type":"paid"}`, run, "paid"},
		{"standard-webhooks", `{"TYPE":"other","type":"paid","Type":"other"}`, run, "paid"},
		{"standard-webhooks", `{"TYPE":"other"}`, run, ""},
		{"standard-webhooks", `{"type":7}`, run, ""},
		{"standard-webhooks", `{"type":null}`, run, ""},
		{"standard-webhooks", `{"type":"paid`, run, ""},
		{"standard-webhooks", `{"type":"other"} {}`, run, ""},
		{"standard-webhooks", `["type","other"]`, run, ""},
		{"standard-webhooks", `no JSON`, run, ""},
		{"standard-webhooks", ``, run, ""},
		{"standard-webhooks", "{\"type\":\"oth\xffr\"}", run, ""},
		{"standard-webhooks", `{"type":"oth\ud800r"}`, run, ""},
		{"standard-webhooks", `{"type":"other","type":"paid"}`, refuse, ""},
		{"standard-webhooks", `{"type":"paid","\u0074ype":"paid"}`, refuse, ""},
		{"standard-webhooks", `{"a":{"type":"other"},"b":[{"type":"other"}],"type":"paid"}`,
			run, "paid"},

		{"stripe", `{"id":"evt_1","type":"paid"}`, run, "paid"},
		{"stripe", `{"id":"evt_1","type":"other"}`, skip, ""},
		{"stripe", `{"id":"evt_1","type":{}}`, run, ""},
		{"stripe", `{"id":"evt_1"}`, run, ""},
		{"stripe", `{"id":7,"type":"paid"}`, refuse, ""},
		{"stripe", `{"ID":"evt_1","type":"paid"}`, refuse, ""},
		{"stripe", `{"id":"evt_1","id":"evt_2","type":"paid"}`, refuse, ""},
		{"stripe", `{"id":"evt_1","type":"other","type":"paid"}`, refuse, ""},
		{"stripe", "{\"id\":\"evt_\xff\",\"type\":\"paid\"}", refuse, ""},
		{"stripe", `{"id":"evt_\udfff","type":"paid"}`, refuse, ""},
		{"stripe", "{\"id\":\"evt_\uFFFD\",\"type\":\"paid\"}", refuse, ""},

		{"slack", `{"event_id":"Ev1","event":{"type":"paid"}}`, run, "paid"},
		{"slack", `{"type":7,"event_id":"Ev1","challenge":7,"event":{"type":"paid"}}`, run, "paid"},
		{"slack", `{"type":"event_callback","event_id":"Ev1","event":{"type":"other"}}`, skip, ""},
		{"slack", `{"type":"event_callback","event_id":"Ev1","event":{"type":7}}`, run, ""},
		{"slack", `{"type":"event_callback","event_id":"Ev1","event":{}}`, run, ""},
		{"slack", `{"type":"event_callback","event_id":"Ev1","event":[]}`, run, ""},
		{"slack", `{"type":"paid","event_id":"Ev1"}`, run, "paid"},
		{"slack", `{"type":"other","event_id":"Ev1"}`, skip, ""},
		{"slack", `{"event_id":7,"event":{"type":"paid"}}`, refuse, ""},
		{"slack", `{"event_id":"Ev1","event_id":"Ev2","event":{"type":"paid"}}`, refuse, ""},
		{"slack", `{"event_id":"Ev1","event":{"type":"paid"},"event":{"type":"other"}}`,
			refuse, ""},
		{"slack", `{"event_id":"Ev1","event":{"type":"other","type":"paid"}}`, refuse, ""},

		{"acme", `{"id":"1","type":"paid"}`, run, "paid"},
		{"acme", `{"id":1,"type":"paid"}`, run, "paid"},
		{"acme", `{"id":1,"type":[]}`, run, ""},
		{"acme", `{"id":1,"type":"other"}`, skip, ""},
		{"acme", `{"id":1,"id":2,"type":"paid"}`, refuse, ""},
		{"acme", `{"id":1,"type":"other","type":"paid"}`, refuse, ""},
		{"acme", "{\"id\":\"\xff\",\"type\":\"paid\"}", refuse, ""},
	} {
		t.Run(row.provider+row.body, func(t *testing.T) {
			got := "none"
			e := newEndpoint(t, claimed(t, dedup.Memory(100), nil), signedBy(t, row.provider),
				func(_ context.Context, d *webhook.Delivery) error {
					got = d.Type
					return nil
				}, webhook.Config{Handles: func(s string) bool { return s == "paid" }})
			w := send(e, signed[row.provider](t, row.body))
			if row.want == refuse {
				wantProblem(t, w, 400, "delivery-malformed", "")
			} else {
				wantOK(t, w)
			}
			if row.want != run {
				e.wantRuns(t, 0)
			} else {
				e.wantRuns(t, 1)
				assert.Equal(t, row.eventType, got)
			}
		})
	}
}

// Everybody who reads an id must be able to tell it from others, also an id of a header, or of the
// user's own Provider.
func TestIDsAreReadable(t *testing.T) {
	for _, id := range []string{"\xff", "evt_\xed\xa0\x80", "evt_\uFFFD"} {
		for name, r := range map[string]*http.Request{
			"github": gitHub(id, "push", "{}"),
			"type":   gitHub("1", id, "{}"),
		} {
			e := newEndpoint(t, claimed(t, dedup.Memory(100), nil),
				provider(t, "github", gitHubSecret), nil,
				webhook.Config{Handles: func(s string) bool { return s == "push" }})
			wantProblem(t, send(e, r), 400, "delivery-malformed", "")
			e.wantRuns(t, 0)
			_ = name
		}
		own := webhook.Provider{Name: "own", Horizon: time.Hour,
			Verify: func(*webhook.Message) (webhook.Identity, error) {
				return webhook.Identity{ID: id, Signed: true}, nil
			}}
		e := newEndpoint(t, claimed(t, dedup.Memory(100), nil), own, nil, webhook.Config{})
		wantProblem(t, send(e, request(nil, "{}")), 400, "delivery-malformed", "")
		e.wantRuns(t, 0)
	}
}
