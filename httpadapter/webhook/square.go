package webhook

import (
	"crypto/sha256"
	"net/http"
	"time"
)

// Square returns the provider for webhooks of Square
// (developer.squareup.com/docs/webhooks/step3validate). X-Square-Hmacsha256-Signature is base64 of
// HMAC-SHA256 of the notification URL and the body, under the signature key of the subscription.
// notificationURL is the URL of the subscription, byte for byte: behind a proxy the receiver cannot
// know it. The id is the body's event_id, which is signed, and Type is its type.
//
// Square signs no time, so a captured delivery can be replayed after the window. Square retries
// for 24 hours until it gets a 2xx (docs/webhooks/troubleshooting), which is Horizon. Bodies have
// up to 1 MiB here; Square documents no limit.
//
// No key, an empty key and an empty URL are an [*dedup.InputError].
func Square(notificationURL string, keys ...string) (Provider, error) {
	macs, err := newMACs(secretSetting{field: "webhook.Square.keys", noun: "key",
		right: "the signature key of the webhook subscription"}, keys)
	if err != nil {
		return Provider{}, err
	}
	if notificationURL == "" {
		return Provider{}, bad("notificationURL", "is empty: it is part of what Square signs")
	}
	signature := func(h http.Header) ([]byte, error) {
		header, ok := line(h, "X-Square-Hmacsha256-Signature")
		data, err := strictBase64.DecodeString(header)
		if !ok || err != nil || len(data) != sha256.Size {
			return nil, ErrSignature
		}
		return data, nil
	}
	precheck := func(h http.Header, _ time.Time) error {
		_, err := signature(h)
		return err
	}
	return Provider{Name: "square", Horizon: day, BodyLimit: defaultBodyLimit, Precheck: precheck,
		Verify: func(m *Message) (Identity, error) {
			data, err := signature(m.Header)
			if err != nil {
				return Identity{}, err
			}
			if !macs.match([][]byte{data}, []byte(notificationURL), m.Body) {
				return Identity{}, ErrSignature
			}
			body, err := members(m.Body, "event_id", "type")
			if err != nil {
				return Identity{}, err
			}
			id := text(body["event_id"])
			if id == "" {
				return Identity{}, bad("body", "has no event_id that can be read")
			}
			return Identity{ID: id, Type: text(body["type"]), Signed: true}, nil
		}}, nil
}
