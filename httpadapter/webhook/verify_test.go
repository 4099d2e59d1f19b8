package webhook_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter/webhook"
)

// Other programs have signed the vectors, and some vectors are the providers' own.
func TestVectors(t *testing.T) {
	list := vectors(t)
	require.GreaterOrEqual(t, len(list), 16)
	for _, v := range list {
		t.Run(v.Provider+"/"+v.Name, func(t *testing.T) {
			got, err := provider(t, v.Provider, v.Secrets...).Verify(v.message())
			require.NoError(t, err)
			sent := time.Time{}
			if v.Sent != 0 {
				sent = time.Unix(v.Sent, 0)
			}
			signed := v.Provider != "github" && v.Provider != "shopify"
			assert.Equal(t, v.ID, got.ID)
			assert.Equal(t, v.Type, got.Type)
			assert.True(t, got.Sent.Equal(sent))
			assert.Equal(t, signed, got.Signed)
		})
	}
}

// The log of a refusal says whether to look for the header or for the secret.
func TestRefusalNamesItsReason(t *testing.T) {
	for _, v := range vectors(t) {
		p := provider(t, v.Provider, v.Secrets...)
		m := v.message()
		m.Body = append(m.Body, ' ')
		_, err := p.Verify(m)
		assert.ErrorContains(t, err, "no secret matches it", v.Name)
		for name := range v.Header {
			if text := strings.ToLower(name); !strings.Contains(text, "signature") &&
				!strings.Contains(text, "hmac") {
				continue
			}
			m = v.message()
			m.Header.Del(name)
			err = p.Precheck(m.Header, m.Now)
			assert.ErrorContains(t, err, "the header "+http.CanonicalHeaderKey(name)+" is missing",
				v.Name)
		}
	}
}

// A delivery that differs in one place is refused.
func TestAnythingElseIsRefused(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Provider+"/"+v.Name, func(t *testing.T) {
			p := provider(t, v.Provider, v.Secrets...)
			refused := func(what string, want error, change func(*webhook.Message)) {
				t.Helper()
				m := v.message()
				change(m)
				_, err := p.Verify(m)
				assert.ErrorIs(t, err, want, what)
			}
			for i := range v.Body {
				refused("byte "+strconv.Itoa(i), webhook.ErrSignature, func(m *webhook.Message) {
					m.Body[i] ^= 1
				})
			}
			refused("cut short", webhook.ErrSignature, func(m *webhook.Message) {
				m.Body = m.Body[:len(m.Body)-1]
			})
			refused("empty", webhook.ErrSignature, func(m *webhook.Message) { m.Body = nil })
			refused("longer", webhook.ErrSignature, func(m *webhook.Message) {
				m.Body = append(m.Body, ' ')
			})
			for name, value := range v.Header {
				if !strings.Contains(strings.ToLower(name), "hmac") &&
					!strings.Contains(strings.ToLower(name), "signature") {
					continue
				}
				refused("no signature", webhook.ErrSignature, func(m *webhook.Message) {
					m.Header.Del(name)
				})
				refused("empty signature", webhook.ErrSignature, func(m *webhook.Message) {
					m.Header.Set(name, "")
				})
				refused("signature twice", webhook.ErrSignature, func(m *webhook.Message) {
					m.Header.Add(name, value)
				})
				refused("signature cut short", webhook.ErrSignature, func(m *webhook.Message) {
					m.Header.Set(name, value[:20])
				})
			}
			if v.Sent != 0 {
				refused("stale", webhook.ErrStale, func(m *webhook.Message) {
					m.Now = time.Unix(v.Sent+301, 0)
				})
				refused("future", webhook.ErrStale, func(m *webhook.Message) {
					m.Now = time.Unix(v.Sent-301, 0)
				})
			}
		})
	}
}

// Each header of a provider must be there exactly once, and its time must be the signed time.
func TestHeadersOfEachProvider(t *testing.T) {
	for _, v := range vectors(t) {
		p := provider(t, v.Provider, v.Secrets...)
		for name := range v.Header {
			for what, change := range map[string]func(http.Header){
				"missing": func(h http.Header) { h.Del(name) },
				"empty":   func(h http.Header) { h.Set(name, "") },
				"twice":   func(h http.Header) { h.Add(name, h.Get(name)) },
			} {
				m := v.message()
				change(m.Header)
				_, err := p.Verify(m)
				assert.Error(t, err, "%s, %s: %s %s", v.Provider, v.Name, name, what)
			}
		}
	}
	for name, header := range map[string]string{"standard-webhooks": "Webhook-Timestamp",
		"slack": "X-Slack-Request-Timestamp"} {
		for _, v := range vectors(t) {
			if v.Provider != name {
				continue
			}
			for _, text := range []string{strconv.FormatInt(v.Sent+1, 10), "",
				"-1", "+" + v.Header[header], "1e9", " 1", "99999999999999999999",
				"9999999999999"} {
				m := v.message()
				m.Header.Set(header, text)
				_, err := provider(t, name, v.Secrets...).Verify(m)
				assert.Error(t, err, "%s at %q", name, text)
			}
		}
	}
}

// Some servers write header names in another case than net/http. A second header in another case
// must be noticed.
func TestHeadersInAnyCase(t *testing.T) {
	for _, v := range vectors(t) {
		p := provider(t, v.Provider, v.Secrets...)
		m := v.message()
		for name := range v.Header {
			values := m.Header.Values(name)
			m.Header.Del(name)
			m.Header[strings.ToLower(name)] = values
		}
		got, err := p.Verify(m)
		require.NoError(t, err, "%s, %s", v.Provider, v.Name)
		assert.Equal(t, v.ID, got.ID, "%s, %s", v.Provider, v.Name)
		for name := range v.Header {
			m := v.message()
			m.Header[strings.ToLower(name)] = []string{"another"}
			_, err := p.Verify(m)
			assert.Error(t, err, "%s, %s: %s twice", v.Provider, v.Name, name)
		}
	}
}

// A secret of one version does not verify signatures of another version, even with the same bytes,
// because everybody may know a public key.
func TestAPublicKeyIsNoSecret(t *testing.T) {
	const whpk = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
	body, now := "{}", time.Unix(1700000000, 0)
	h, err := webhook.Sign("evt_1", now, []byte(body), "whsec_"+strings.TrimPrefix(whpk, "whpk_"))
	require.NoError(t, err)
	m := &webhook.Message{Header: h, Body: []byte(body), Now: now}
	for _, secrets := range [][]string{{whpk}, {whpk, secret}} {
		_, err := provider(t, "standard-webhooks", secrets...).Verify(m)
		assert.ErrorIs(t, err, webhook.ErrSignature)
	}
	signature := strings.TrimPrefix(h.Get("Webhook-Signature"), "v1,")
	for _, list := range []string{"v1a," + signature, "v2," + signature, "v1" + signature,
		"V1," + signature, "v1, " + signature, signature} {
		m.Header.Set("Webhook-Signature", list)
		_, err := provider(t, "standard-webhooks",
			"whsec_"+strings.TrimPrefix(whpk, "whpk_")).Verify(m)
		assert.ErrorIs(t, err, webhook.ErrSignature, list)
	}
}

// A list may have as many signatures as a rotation needs, and no more.
func TestSignaturesAreBounded(t *testing.T) {
	for _, v := range vectors(t) {
		if v.Name != "unknown version beside" && v.Name != "one secret" || v.Provider == "shopify" {
			continue
		}
		name, sep := "webhook-signature", " v1,AAAA"
		if v.Provider == "stripe" {
			name, sep = "Stripe-Signature", ",v1=00"
		}
		p := provider(t, v.Provider, v.Secrets...)
		for n, want := range map[int]error{10: nil, 16: webhook.ErrSignature,
			1000: webhook.ErrSignature} {
			m := v.message()
			m.Header.Set(name, v.Header[name]+strings.Repeat(sep, n))
			_, err := p.Verify(m)
			assert.ErrorIs(t, err, want, "%s with %d more", v.Provider, n)
		}
	}
}

func TestAnIDWithADotIsMalformed(t *testing.T) {
	v := vectors(t)[0]
	m := v.message()
	m.Header.Set("Webhook-Id", "msg.1")
	_, err := provider(t, v.Provider, v.Secrets...).Verify(m)
	assert.ErrorAs(t, err, new(*dedup.InputError))
	m.Header.Del("Webhook-Id")
	_, err = provider(t, v.Provider, v.Secrets...).Verify(m)
	assert.ErrorAs(t, err, new(*dedup.InputError))
}

func TestSecretsAreRequired(t *testing.T) {
	for name, preset := range presets {
		for what, secrets := range map[string][]string{"none": nil, "empty": {""},
			"one is empty": {secret, ""}} {
			p, err := preset(secrets...)
			assert.Error(t, err, "%s, %s", name, what)
			assert.Nil(t, p.Verify, "%s, %s", name, what)
			assert.ErrorAs(t, err, new(*dedup.InputError))
		}
	}
	for what, s := range map[string]string{
		"no prefix": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "prefix alone": "whsec_",
		"other prefix": "whxx_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX",
		"no base64":    "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRY!",
		"short":        "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRY=",
		"long":         "whsec_" + strings.Repeat("AAAA", 21) + "AAA=",
		"private":      "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX",
		"short key":    "whpk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX",
	} {
		_, err := webhook.StandardWebhooks(secret, s)
		assert.ErrorAs(t, err, new(*dedup.InputError), what)
	}
}

// Sign makes the same signatures as the other programs.
func TestSign(t *testing.T) {
	n := 0
	for _, v := range vectors(t) {
		if len(v.Private) == 0 {
			continue
		}
		n++
		h, err := webhook.Sign(v.ID, time.Unix(v.Sent, 0), []byte(v.Body), v.Private...)
		require.NoError(t, err)
		for name, want := range v.Header {
			assert.Equal(t, want, h.Get(name), "%s: %s", v.Name, name)
		}
	}
	assert.GreaterOrEqual(t, n, 7)
	for what, call := range map[string]struct {
		id      string
		secrets []string
	}{
		"no id": {"", []string{secret}}, "a dot": {"a.b", []string{secret}},
		"a blank": {"a b", []string{secret}}, "a line": {"a\nb", []string{secret}},
		"no secret": {"a", nil}, "an empty one": {"a", []string{secret, ""}},
		"a public one":        {"a", []string{"whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="}},
		"a short private one": {"a", []string{"whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"}},
		"no base64":           {"a", []string{"whsk_!"}},
	} {
		h, err := webhook.Sign(call.id, time.Unix(1, 0), nil, call.secrets...)
		assert.Nil(t, h, what)
		assert.ErrorAs(t, err, new(*dedup.InputError))
	}
}

// The signature on Slack's own page is of a slash command. It is verified, but is not an event.
func TestSlackCommandsAreNoEvents(t *testing.T) {
	const command = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	h := http.Header{}
	h.Set("X-Slack-Signature",
		"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503")
	h.Set("X-Slack-Request-Timestamp", "1531420618")
	p := provider(t, "slack", "8f742231b10e8888abcd99yyyzzz85a5")
	m := &webhook.Message{Header: h, Body: []byte(command), Now: time.Unix(1531420618, 0)}
	_, err := p.Verify(m)
	assert.ErrorAs(t, err, new(*dedup.InputError))
	assert.ErrorContains(t, err, "slash command")
	m.Body[0] ^= 1
	_, err = p.Verify(m)
	assert.ErrorIs(t, err, webhook.ErrSignature)
}

func TestAnIDInTheBodyIsRequired(t *testing.T) {
	p, err := webhook.HMAC(webhook.HMACConfig{
		Name: "x", Secrets: []string{"s"}, Header: "S", IDMember: "id", Horizon: time.Hour,
	})
	require.NoError(t, err)
	var input *dedup.InputError
	for _, body := range []string{`{}`, `[]`, `no`, `{"id":""}`, `{"id":{}}`, `{"id":null}`} {
		m := &webhook.Message{Header: http.Header{"S": {hexMAC("s", body)}}, Body: []byte(body)}
		_, err := p.Verify(m)
		assert.ErrorAs(t, err, &input, body)
	}
}
