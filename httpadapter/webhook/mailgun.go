package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

const mailgunHorizon = 8 * time.Hour

// Mailgun returns the provider for event webhooks of Mailgun
// (documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks). The body's
// signature has a timestamp, a token, and the hex of HMAC-SHA256 of both under the HTTP webhook
// signing key. The events of a subaccount also have a parent-signature, made with the key of the
// primary account: either signature is enough.
//
// Mailgun does not sign the event itself. Anybody with a captured timestamp, token and signature
// can send another event with them. So the receiver binds a token to the first event that comes
// with it, and refuses the same token with another id. It remembers this in the memory of its
// process, for at least the last 65,536 tokens. If an event matters, ask Mailgun's Events API for
// it.
//
// The id is that of event-data, and stays the same when Mailgun retries. Identity.Signed is true
// although the signature does not cover the id: a key made of the body would change with each
// token. Type is the event of event-data.
//
// Mailgun retries for eight hours (webhooks/webhook-retries), which is Horizon. It does not say
// whether a retry has a new timestamp, so a timestamp may be as old as Horizon and five minutes:
// within that time the record shows that a repeated event is a duplicate. It may be five minutes in
// the future. Mailgun retries after any answer except 200 and 406. The signature is in the body, so
// each body is read before it is refused, up to 1 MiB.
//
// No key and an empty key are an [*dedup.InputError].
func Mailgun(signingKeys ...string) (Provider, error) {
	macs, err := newMACs(secretSetting{field: "webhook.Mailgun.signingKeys", noun: "key",
		right: "the HTTP webhook signing key of Mailgun's page"}, signingKeys)
	if err != nil {
		return Provider{}, err
	}
	v := &mailgun{macs: macs, guard: replayGuard{keep: mailgunHorizon + 2*tolerance}}
	return Provider{Name: "mailgun", Horizon: mailgunHorizon, BodyLimit: defaultBodyLimit,
		Verify: v.verify}, nil
}

type mailgun struct {
	macs  macs
	guard replayGuard
}

func (v *mailgun) verify(m *Message) (Identity, error) {
	body, err := members(m.Body, "signature", "event-data")
	if err != nil {
		return Identity{}, err
	}
	token, sent, err := v.signature(body["signature"], m.Now)
	if err != nil {
		return Identity{}, err
	}
	event, err := members(body["event-data"], "id", "event")
	if err != nil {
		return Identity{}, err
	}
	id := text(event["id"])
	if id == "" {
		return Identity{}, bad("event-data", "has no id that can be read")
	}
	if !v.guard.bind(token, id, m.Now) {
		return Identity{}, ErrSignature
	}
	return Identity{ID: id, Type: text(event["event"]), Signed: true, Sent: sent}, nil
}

// signature returns the token and the time of a signature that was made with one of the keys.
func (v *mailgun) signature(raw json.RawMessage, now time.Time) (string, time.Time, error) {
	said, err := members(raw, "timestamp", "token", "signature", "parent-signature")
	if err != nil {
		return "", time.Time{}, err
	}
	timestamp, token := textOrNumber(said["timestamp"]), text(said["token"])
	var list [][]byte
	for _, name := range []string{"signature", "parent-signature"} {
		if data, err := hex.DecodeString(text(said[name])); err == nil && len(data) == sha256.Size {
			list = append(list, data)
		}
	}
	if token == "" || !v.macs.match(list, []byte(timestamp), []byte(token)) {
		return "", time.Time{}, ErrSignature
	}
	sent, err := fresh(timestamp, now, mailgunHorizon+tolerance)
	if err == nil {
		err = recent(sent, now, mailgunHorizon)
	}
	return token, sent, err
}
