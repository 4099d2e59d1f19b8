package webhook_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/httpadapter/webhook"
)

// The examples are from Adyen's page on HMAC signatures, and from adyen-node-api-library,
// src/__tests__/hmacValidator.spec.ts.
const (
	adyenKey  = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056"
	adyenBody = `{"live":"false","notificationItems":[{"NotificationRequestItem":{` +
		`"additionalData":{"hmacSignature":"coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0="},` +
		`"amount":{"value":1130,"currency":"EUR"},"pspReference":"7914073381342284",` +
		`"eventCode":"AUTHORISATION","eventDate":"2014-08-06T17:15:34.121+02:00",` +
		`"merchantAccountCode":"TestMerchant","merchantReference":"TestPayment-1407325143704",` +
		`"paymentMethod":"visa","success":"true"}}]}`

	adyenNodeKey  = "DFB1EB5485895CFA84146406857104ABB4CBCABDC8AAF103A624C8F6A3EAAB00"
	adyenNodeBody = `{"notificationItems":[{"NotificationRequestItem":{` +
		`"additionalData":{"hmacSignature":"ipnxGCaUZ4l8TUW75a71/ghd2Fe5ffvX0pV4TLTntIc="},` +
		`"amount":{"currency":"EUR","value":1000},"pspReference":"pspReference",` +
		`"originalReference":"originalReference","merchantAccountCode":"merchantAccount",` +
		`"merchantReference":"reference","eventCode":"EVENT","success":"true"}}]}`
)

func adyenMessage(body string) *webhook.Message {
	return &webhook.Message{Body: []byte(body), Now: time.Unix(fuzzNow, 0)}
}

// adyenSigned is a body with one item of these fields, signed with adyenKey.
func adyenSigned(psp, reference, event, success string) string {
	key, _ := hex.DecodeString(adyenKey)
	text := strings.Join([]string{psp, "", "Shop", reference, "5", "EUR", event, success}, ":")
	return fmt.Sprintf(`{"notificationItems":[{"NotificationRequestItem":{"additionalData":`+
		`{"hmacSignature":%q},"amount":{"value":5,"currency":"EUR"},"pspReference":%q,`+
		`"eventCode":%q,"merchantAccountCode":"Shop","merchantReference":%q,"success":%q}}]}`,
		base64MAC(sha256.New, string(key), text), psp, event, reference, success)
}

func TestAdyenVectors(t *testing.T) {
	p := built(t)(webhook.Adyen(adyenNodeKey, strings.ToLower(adyenKey)))
	for body, want := range map[string]webhook.Identity{
		adyenBody: {ID: "7914073381342284:AUTHORISATION:true", Type: "AUTHORISATION",
			Signed: true},
		adyenNodeBody: {ID: "pspReference:EVENT:true", Type: "EVENT", Signed: true},
	} {
		got, err := p.Verify(adyenMessage(body))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestAdyenAnySignedFieldChangedIsRefused(t *testing.T) {
	p := built(t)(webhook.Adyen(adyenNodeKey))
	for _, change := range [][2]string{{`"pspReference":"psp`, `"pspReference":"qsp`},
		{"originalReference\":\"o", "originalReference\":\"p"}, {"merchantAccount\"", "other\""},
		{`"reference"`, `"reference2"`}, {"1000", "1001"}, {"1000", "1000.0"}, {"EUR", "USD"},
		{`"EVENT"`, `"CAPTURE"`}, {`"true"`, `"false"`}, {`"true"`, "true"}, {"ipnx", "iPnx"},
		{"hmacSignature", "signature"}, {"ipnxGCaU", ""}} {
		body := strings.Replace(adyenNodeBody, change[0], change[1], 1)
		require.NotEqual(t, adyenNodeBody, body, change[0])
		wantRefused(t, p, adyenMessage(body), change[1])
	}
	wantRefused(t, built(t)(webhook.Adyen(adyenKey)), adyenMessage(adyenNodeBody), "another key")
}

func TestAdyenFailureAndSuccessAreTwoEvents(t *testing.T) {
	p := built(t)(webhook.Adyen(adyenKey))
	failed, err := p.Verify(adyenMessage(adyenSigned("1", "r", "AUTHORISATION", "false")))
	require.NoError(t, err)
	paid, err := p.Verify(adyenMessage(adyenSigned("1", "r", "AUTHORISATION", "true")))
	require.NoError(t, err)
	assert.NotEqual(t, failed.ID, paid.ID)
}

// A merchant's reference may contain colons. A field that could then be split otherwise may not.
func TestAdyenColons(t *testing.T) {
	p := built(t)(webhook.Adyen(adyenKey))
	_, err := p.Verify(adyenMessage(adyenSigned("1", "a:9:EUR:CAPTURE:true", "REFUND", "true")))
	require.NoError(t, err)
	for _, body := range []string{adyenSigned("1:2", "r", "REFUND", "true"),
		adyenSigned("1", "r", "A:B", "true"), adyenSigned("1", "r", "A", "true:true")} {
		_, err := p.Verify(adyenMessage(body))
		wantInputError(t, err, body)
	}
}

func TestAdyenMalformed(t *testing.T) {
	p := built(t)(webhook.Adyen(adyenKey))
	item := strings.TrimSuffix(adyenBody[strings.Index(adyenBody, "["):], "}")
	item = item[1 : len(item)-1]
	for _, body := range []string{"", "{}", `{"notificationItems":[]}`, `{"notificationItems":{}}`,
		`{"notificationItems":[` + item + "," + item + `]}`,
		strings.Replace(adyenBody, `"success":"true"`, `"success":"true","success":"true"`, 1),
		adyenSigned("", "r", "A", "true"), adyenSigned("1", "r", "", "true")} {
		_, err := p.Verify(adyenMessage(body))
		wantInputError(t, err, body)
	}
}

func TestAdyenNeedsHexKeys(t *testing.T) {
	for what, keys := range map[string][]string{"none": nil, "empty": {adyenKey, ""},
		"no hex": {"hush"}} {
		_, err := webhook.Adyen(keys...)
		wantInputError(t, err, what)
	}
}

func FuzzAdyen(f *testing.F) {
	p := built(f)(webhook.Adyen(adyenKey, adyenNodeKey))
	for _, body := range []string{adyenBody, adyenNodeBody, adyenSigned("1", "a:b", "A", "true"),
		`{"notificationItems":[null]}`, "{}"} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		got, err := p.Verify(adyenMessage(body))
		assert.False(t, err == nil && (!got.Signed || strings.Count(got.ID, ":") != 2), body)
	})
}

// Prevents: a captured delivery gets a signed field a second time, with another case of its name.
// The signature still matches, and the handler's encoding/json takes the last field.
func TestAdyenSignedFieldInAnotherCaseIsRefused(t *testing.T) {
	p := built(t)(webhook.Adyen(adyenKey))
	signed := adyenSigned("1", "r", "AUTHORISATION", "false")
	for old, more := range map[string]string{
		`"success":"false"`: `"Success":"true",`,
		`"pspReference"`:    `"PSPReference":"2",`,
		`"amount":{`:        `"Amount":{"value":999999,"currency":"EUR"},`,
		`"value"`:           `"Value":999999,`,
		`"notificationI`:    `"NotificationItems":[],`,
	} {
		body := strings.Replace(signed, old, more+old, 1)
		require.NotEqual(t, signed, body, old)
		_, err := p.Verify(adyenMessage(body))
		require.ErrorContains(t, err, "differs by case alone", more)
	}
}
