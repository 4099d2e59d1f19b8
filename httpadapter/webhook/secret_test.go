package webhook_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter/webhook"
)

// secretSettings has every function that takes secrets. It has the name of the setting, and how its
// errors describe a right secret.
var secretSettings = map[string]struct {
	with  func(secrets ...string) error
	right string
}{
	"webhook.StandardWebhooks.secrets": {of(webhook.StandardWebhooks), "whsec_ and base64 of 24-64"},
	"webhook.Stripe.secrets":           {of(webhook.Stripe), "begins with whsec_"},
	"webhook.GitHub.secrets":           {of(webhook.GitHub), "the field Secret"},
	"webhook.Shopify.secrets":          {of(webhook.Shopify), "client secret"},
	"webhook.Slack.secrets":            {of(webhook.Slack), "Signing Secret"},
	"webhook.Adyen.hexKeys":            {of(webhook.Adyen), "in hex"},
	"webhook.Mailgun.signingKeys":      {of(webhook.Mailgun), "signing key"},
	"webhook.Square.keys": {of(func(keys ...string) (webhook.Provider, error) {
		return webhook.Square("https://a.example/hook", keys...)
	}), "signature key"},
	"webhook.Twilio.tokens": {of(func(tokens ...string) (webhook.Provider, error) {
		return webhook.Twilio("https://a.example/hook", tokens...)
	}), "auth token"},
	"webhook.HMACConfig.Secrets": {of(func(secrets ...string) (webhook.Provider, error) {
		return webhook.HMAC(webhook.HMACConfig{Name: "x", Secrets: secrets, Header: "S",
			IDMember: "id", Horizon: time.Hour})
	}), "share with the sender"},
	"webhook.PayPalConfig.WebhookIDs": {of(func(ids ...string) (webhook.Provider, error) {
		return webhook.PayPal(webhook.PayPalConfig{WebhookIDs: ids})
	}), "webhook ID"},
	"webhook.Sign.secrets": {func(secrets ...string) error {
		_, err := webhook.Sign("a", time.Unix(1, 0), nil, secrets...)
		return err
	}, "whsk_ and base64 of an ed25519 private key"},
}

func of(preset func(...string) (webhook.Provider, error)) func(...string) error {
	return func(secrets ...string) error {
		_, err := preset(secrets...)
		return err
	}
}

// goodSecret returns a secret that the function accepts.
func goodSecret(field string) string {
	if field == "webhook.Adyen.hexKeys" {
		return "00ff"
	}
	return secret
}

// Prevents: a program without the secret in its environment stops with an error that names neither
// the setting nor its form.
func TestEmptySecretsAreNamed(t *testing.T) {
	for field, s := range secretSettings {
		good := goodSecret(field)
		require.NoError(t, s.with(good), field)
		for what, row := range map[string]struct {
			secrets []string
			want    string
		}{
			"none":     {nil, "has no "},
			"one":      {[]string{""}, "has an empty "},
			"a second": {[]string{good, "", good}, "(number 2 of 3)"},
		} {
			err := s.with(row.secrets...)
			var input *dedup.InputError
			require.ErrorAs(t, err, &input, "%s: %s", field, what)
			assert.Equal(t, field, input.Field, what)
			assert.ErrorContains(t, err, row.want, "%s: %s", field, what)
			assert.ErrorContains(t, err, s.right, "%s: %s", field, what)
			assert.Equal(t, what == "a second", strings.Contains(err.Error(), "number"),
				"%s: a position among one: %v", field, err)
		}
	}
}

// Each kind of malformed secret has its own error, which never contains the secret.
func TestMalformedSecretsAreNamed(t *testing.T) {
	const (
		verify, sign = "webhook.StandardWebhooks.secrets", "webhook.Sign.secrets"
		half         = "AAECAwQFBgcICQoLDA0ODxAREhMUFR" // of the base64 of a secret
	)
	for _, row := range []struct{ field, secret, want string }{
		{verify, half + "YX", "another prefix, or none"},
		{verify, "whxx_" + half + "YX", "another prefix, or none"},
		{verify, "whsec_" + half + "Y!", "is not base64 after whsec_"},
		{verify, "whsec_" + half + "YX ", "is not base64 after whsec_"},
		{verify, "whsec_", "has 0 bytes after whsec_"},
		{verify, "whsec_" + half + "Y=", "has 23 bytes after whsec_"},
		{verify, "whsec_" + strings.Repeat("AAAA", 21) + "AAA=", "has 65 bytes after whsec_"},
		{verify, "whsk_" + half + "YX", "is a private key"},
		{verify, "whpk_" + half + "YX", "has 24 bytes after whpk_, and must have 32"},
		{verify, "whpk_" + half + "Y!", "is not base64 after whpk_"},
		{sign, half + "YX", "another prefix, or none"},
		{sign, "whsec_" + half + "Y!", "is not base64 after whsec_"},
		{sign, "whsk_" + half + "YX", "is not base64 of a private key"},
		{sign, "whpk_" + half + "YX", "is a public key"},
		{"webhook.Adyen.hexKeys", half + "YX", "is not hex"},
		{"webhook.PayPalConfig.WebhookIDs", half + "|", "has the separator |"},
	} {
		s := secretSettings[row.field]
		alone, second := s.with(row.secret), s.with(goodSecret(row.field), row.secret)
		for _, err := range []error{alone, second} {
			var input *dedup.InputError
			require.ErrorAs(t, err, &input, row.want)
			assert.Equal(t, row.field, input.Field)
			assert.ErrorContains(t, err, row.want)
			assert.ErrorContains(t, err, s.right)
			assert.NotContains(t, err.Error(), half, "the text has the secret")
		}
		assert.NotContains(t, alone.Error(), "number")
		assert.ErrorContains(t, second, "(number 2 of 2)")
	}
}
