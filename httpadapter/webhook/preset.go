package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Stripe is the provider that docs.stripe.com/webhooks describes. Stripe-Signature is `t=<Unix
// seconds>,v1=<hex>`, with a v1 for each secret while one is rolled. A v1 is the HMAC-SHA256 of
// `t.body` under the secret as it is shown, `whsec_` included; t may be off by 300 s. Schemes other
// than v1 are ignored. The id is in the body, so it is signed. Stripe retries for three days, and
// events of the last 30 days can be resent by hand
// (docs.stripe.com/webhooks/process-undelivered-events): Horizon is 30 days.
func Stripe(secrets ...string) (Provider, error) {
	keys, err := newMACs(secretSetting{field: "webhook.Stripe.secrets", noun: "secret",
		right: "the signing secret of the endpoint, which begins with whsec_"}, secrets)
	if err != nil {
		return Provider{}, err
	}
	said := func(h http.Header, now time.Time) (timestamp string, sent time.Time, v1 [][]byte,
		err error) {
		header, _ := line(h, "Stripe-Signature")
		timestamp, v1, ok := stripeSignature(header)
		if !ok || len(v1) == 0 {
			return "", time.Time{}, nil, noHeader("Stripe-Signature")
		}
		sent, err = fresh(timestamp, now, tolerance)
		return timestamp, sent, v1, err
	}
	precheck := func(h http.Header, now time.Time) error {
		_, _, _, err := said(h, now)
		return err
	}
	return Provider{Name: "stripe", Horizon: 30 * day, BodyLimit: defaultBodyLimit,
		Precheck: precheck, Verify: func(m *Message) (Identity, error) {
			timestamp, sent, v1, err := said(m.Header, m.Now)
			if err != nil {
				return Identity{}, err
			}
			if !keys.match(v1, []byte(timestamp+"."), m.Body) {
				return Identity{}, errNoMatch
			}
			body, err := members(m.Body, "id", "type")
			if err != nil {
				return Identity{}, err
			}
			id := text(body["id"])
			if id == "" {
				return Identity{}, bad("body", "has no id that can be read")
			}
			return Identity{ID: id, Type: text(body["type"]), Signed: true, Sent: sent}, nil
		}}, nil
}

// stripeSignature splits a header. It reports false if there is no t, two of them, or too many
// parts.
func stripeSignature(header string) (timestamp string, v1 [][]byte, ok bool) {
	n := 0
	for part := range strings.SplitSeq(header, ",") {
		if n++; n > maxSignatures {
			return "", nil, false
		}
		switch name, value, _ := strings.Cut(part, "="); name {
		case "t":
			if timestamp != "" {
				return "", nil, false
			}
			timestamp = value
		case "v1":
			if data, err := hex.DecodeString(value); err == nil {
				v1 = append(v1, data)
			}
		}
	}
	return timestamp, v1, timestamp != ""
}

// GitHub is the provider that docs.github.com/en/webhooks describes. X-Hub-Signature-256 is
// `sha256=<hex>` of HMAC-SHA256 of the body, X-GitHub-Delivery the id of the event and
// X-GitHub-Event its type; neither is signed. Bodies have up to 25 MiB. GitHub does not retry by
// itself (using-webhooks/handling-failed-webhook-deliveries). You can resend deliveries of the last
// three days by hand or by a script, under their old id: Horizon is three days.
func GitHub(secrets ...string) (Provider, error) {
	keys, err := newMACs(secretSetting{field: "webhook.GitHub.secrets", noun: "secret",
		right: "the text in the field Secret of the webhook's page"}, secrets)
	if err != nil {
		return Provider{}, err
	}
	return unsigned("github", 3*day, gitHubBodyLimit, keys, "X-GitHub-Delivery",
		"X-GitHub-Event", func(h string) ([]byte, error) {
			text, ok := strings.CutPrefix(h, "sha256=")
			if !ok {
				return nil, ErrSignature
			}
			return hex.DecodeString(text)
		}, "X-Hub-Signature-256"), nil
}

// Shopify is the provider that shopify.dev/docs/apps/build/webhooks describes.
// X-Shopify-Hmac-SHA256 is base64 of HMAC-SHA256 of the body under the app's client secret
// (verify-deliveries), X-Shopify-Event-Id the id of the event (ignore-duplicates) and
// X-Shopify-Topic its type; neither is signed. Since September 2024 Shopify retries 8 times over 4
// hours (shopify.dev/changelog/updates-to-webhook-retry-mechanism). Before, it retried for 48
// hours, which is Horizon.
func Shopify(secrets ...string) (Provider, error) {
	keys, err := newMACs(secretSetting{field: "webhook.Shopify.secrets", noun: "secret",
		right: "the client secret of the app"}, secrets)
	if err != nil {
		return Provider{}, err
	}
	return unsigned("shopify", 2*day, defaultBodyLimit, keys, "X-Shopify-Event-Id",
		"X-Shopify-Topic", strictBase64.DecodeString, "X-Shopify-Hmac-Sha256"), nil
}

// unsigned returns a provider that signs only its bodies.
func unsigned(name string, horizon time.Duration, limit int, keys macs, id, eventType string,
	decode func(string) ([]byte, error), signature string,
) Provider {
	said := func(h http.Header) ([]byte, error) {
		header, ok := line(h, signature)
		data, err := decode(header)
		if !ok || err != nil || len(data) != sha256.Size {
			return nil, noHeader(signature)
		}
		return data, nil
	}
	precheck := func(h http.Header, _ time.Time) error {
		_, err := said(h)
		return err
	}
	return Provider{Name: name, Horizon: horizon, BodyLimit: limit, Precheck: precheck,
		Verify: func(m *Message) (Identity, error) {
			data, err := said(m.Header)
			if err != nil {
				return Identity{}, err
			}
			if !keys.match([][]byte{data}, m.Body) {
				return Identity{}, errNoMatch
			}
			eventID, okID := line(m.Header, id)
			kind, okType := line(m.Header, eventType)
			if !okID || !okType {
				return Identity{}, bad(id+", "+eventType, "must both be there, once")
			}
			return Identity{ID: eventID, Type: kind}, nil
		}}
}

// Slack is the provider of the Events API that docs.slack.dev describes. X-Slack-Signature is
// `v0=<hex>` of HMAC-SHA256 of `v0:timestamp:body` (authentication/verifying-requests-from-slack),
// and X-Slack-Request-Timestamp may be off by five minutes. The id is the body's event_id, so it is
// signed; Type is the type of the event in the body. Two requests are not events: url_verification,
// which is answered with its challenge, and app_rate_limited, which says that Slack holds events
// back. The latter has no id; it is logged and answered with 200. Slack gives a receiver three
// seconds, and retries three times within an hour (apis/events-api), which is Horizon.
//
// Slash commands and interactions have no event_id, and are not sent again: they are answered with
// 400, and need an endpoint of their own.
func Slack(secrets ...string) (Provider, error) {
	keys, err := newMACs(secretSetting{field: "webhook.Slack.secrets", noun: "secret",
		right: "the Signing Secret of the app's page"}, secrets)
	if err != nil {
		return Provider{}, err
	}
	said := func(h http.Header, now time.Time) (timestamp string, sent time.Time, signature []byte,
		err error) {
		header, _ := line(h, "X-Slack-Signature")
		timestamp, _ = line(h, "X-Slack-Request-Timestamp")
		text, ok := strings.CutPrefix(header, "v0=")
		signature, err = hex.DecodeString(text)
		if !ok || err != nil || len(signature) != sha256.Size {
			return "", time.Time{}, nil, noHeader("X-Slack-Signature")
		}
		sent, err = fresh(timestamp, now, tolerance)
		return timestamp, sent, signature, err
	}
	precheck := func(h http.Header, now time.Time) error {
		_, _, _, err := said(h, now)
		return err
	}
	return Provider{Name: "slack", Horizon: time.Hour, BodyLimit: defaultBodyLimit,
		Precheck: precheck, Verify: func(m *Message) (Identity, error) {
			timestamp, sent, signature, err := said(m.Header, m.Now)
			if err != nil {
				return Identity{}, err
			}
			if !keys.match([][]byte{signature}, []byte("v0:"+timestamp+":"), m.Body) {
				return Identity{}, errNoMatch
			}
			return slackIdentity(m.Body, sent)
		}}, nil
}

func slackIdentity(body []byte, sent time.Time) (Identity, error) {
	said, err := members(body, "type", "challenge", "event_id", "event")
	if err != nil {
		return Identity{}, err
	}
	i := Identity{ID: text(said["event_id"]), Type: text(said["type"]), Signed: true, Sent: sent}
	if challenge := text(said["challenge"]); i.Type == "url_verification" && challenge != "" {
		return Identity{Type: i.Type, Signed: true, Sent: sent, challenge: []byte(challenge)}, nil
	}
	if i.ID == "" && i.Type == "app_rate_limited" {
		i.notice = true
		return i, nil
	}
	if i.ID == "" {
		return Identity{}, bad("body",
			"has no event_id that can be read: slash commands and interactions are not events, and need an endpoint of their own")
	}
	if event, inside := said["event"]; inside { // the outer type is then event_callback
		said, err := members(event, "type")
		if err != nil {
			return Identity{}, err
		}
		i.Type = text(said["type"])
	}
	return i, nil
}
