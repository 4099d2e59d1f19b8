package webhook

import (
	"encoding/hex"
	"encoding/json"
	"strings"
)

// Adyen returns the provider for standard webhooks of Adyen
// (docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures).
// additionalData.hmacSignature is base64 of HMAC-SHA256 of eight fields of the one item, joined by
// colons. They are pspReference, originalReference, merchantAccountCode, merchantReference,
// amount.value, amount.currency, eventCode and success. A key is the HMAC key as the Customer Area
// shows it, in hex; while you change it, pass the old one and the new one.
//
// Adyen signs nothing else of the body. Anybody with a captured delivery can change reason,
// eventDate, paymentMethod and the rest of additionalData. Only merchantReference may have colons:
// with colons in other fields the signed text could be split in another way.
//
// The id is pspReference, eventCode and success, joined by colons; all are signed. Adyen signs
// nothing that is unique for each event. success is part of the id so that a payment that fails and
// then succeeds under the same reference is two events. Type is the eventCode. Adyen's JSON has one
// item in notificationItems (webhooks/webhook-types): a body with more or fewer is malformed.
//
// Adyen signs no time. It retries for 30 days (webhooks/troubleshoot), which is Horizon, until it
// gets a 2xx within 10 seconds. The answer has no body: Adyen looks at the status, and no longer
// needs the body "[accepted]". Bodies have up to 1 MiB here; Adyen documents no limit. Webhooks of
// Adyen for Platforms have their signature in a header: use [HMAC], with the decoded key as a
// secret.
//
// No key, and a key that is empty or not hex, are an [*dedup.InputError].
func Adyen(hexKeys ...string) (Provider, error) {
	setting := secretSetting{field: "webhook.Adyen.hexKeys", noun: "key",
		right: "the HMAC key of the Customer Area, in hex"}
	keys := make([]string, len(hexKeys))
	for i, k := range hexKeys {
		data, err := hex.DecodeString(k)
		if err != nil {
			return Provider{}, setting.malformed(i, len(hexKeys), "is not hex")
		}
		keys[i] = string(data)
	}
	macs, err := newMACs(setting, keys)
	if err != nil {
		return Provider{}, err
	}
	return Provider{Name: "adyen", Horizon: 30 * day, BodyLimit: defaultBodyLimit,
		Verify: func(m *Message) (Identity, error) {
			item, err := adyenItemOf(m.Body)
			if err != nil {
				return Identity{}, err
			}
			signature, err := strictBase64.DecodeString(item.signature)
			if err != nil || !macs.match([][]byte{signature}, item.signed) {
				return Identity{}, ErrSignature
			}
			return item.identity, nil
		}}, nil
}

// adyenItem is what a body says, before it is verified.
type adyenItem struct {
	signature string
	signed    []byte
	identity  Identity
}

// adyenItemOf reads the one item of a body.
func adyenItemOf(body []byte) (adyenItem, error) {
	outer, err := exactMembers(body, "notificationItems")
	if err != nil {
		return adyenItem{}, err
	}
	var items []json.RawMessage
	if json.Unmarshal(outer["notificationItems"], &items) != nil || len(items) != 1 {
		return adyenItem{}, bad("notificationItems", "must be an array of one item")
	}
	wrapped, err := exactMembers(items[0], "NotificationRequestItem")
	if err != nil {
		return adyenItem{}, err
	}
	item, err := exactMembers(wrapped["NotificationRequestItem"], "additionalData", "pspReference",
		"originalReference", "merchantAccountCode", "merchantReference", "amount", "eventCode",
		"success")
	if err != nil {
		return adyenItem{}, err
	}
	amount, err := exactMembers(item["amount"], "value", "currency")
	if err != nil {
		return adyenItem{}, err
	}
	data, err := exactMembers(item["additionalData"], "hmacSignature")
	if err != nil {
		return adyenItem{}, err
	}
	psp, event, success := text(item["pspReference"]), text(item["eventCode"]),
		text(item["success"])
	front := []string{psp, text(item["originalReference"]), text(item["merchantAccountCode"])}
	back := []string{textOrNumber(amount["value"]), text(amount["currency"]), event, success}
	for _, field := range append(front, back...) {
		if strings.Contains(field, ":") {
			return adyenItem{}, bad("body", "has a colon in another field than merchantReference")
		}
	}
	if psp == "" || event == "" {
		return adyenItem{}, bad("body", "has no pspReference or no eventCode that can be read")
	}
	signed := append(append(front, text(item["merchantReference"])), back...)
	return adyenItem{signature: text(data["hmacSignature"]),
		signed:   []byte(strings.Join(signed, ":")),
		identity: Identity{ID: psp + ":" + event + ":" + success, Type: event, Signed: true}}, nil
}
