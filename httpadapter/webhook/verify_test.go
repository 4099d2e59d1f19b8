package webhook_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter/webhook"
)

// The vectors are signed by other programs, and some are the providers' own.
func TestVectors(t *testing.T) {
	list := vectors(t)
	if len(list) < 16 {
		t.Fatalf("%d vectors", len(list))
	}
	for _, v := range list {
		t.Run(v.Provider+"/"+v.Name, func(t *testing.T) {
			got, err := provider(t, v.Provider, v.Secrets...).Verify(v.message())
			if err != nil {
				t.Fatal(err)
			}
			sent := time.Time{}
			if v.Sent != 0 {
				sent = time.Unix(v.Sent, 0)
			}
			signed := v.Provider != "github" && v.Provider != "shopify"
			if got.ID != v.ID || got.Type != v.Type || !got.Sent.Equal(sent) || got.Signed != signed {
				t.Errorf("got %+v, want %+v", got, v)
			}
		})
	}
}

// What changes in one place only is refused.
func TestAnythingElseIsRefused(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Provider+"/"+v.Name, func(t *testing.T) {
			p := provider(t, v.Provider, v.Secrets...)
			refused := func(what string, want error, change func(*webhook.Message)) {
				t.Helper()
				m := v.message()
				change(m)
				if got, err := p.Verify(m); !errors.Is(err, want) {
					t.Errorf("%s: %+v, %v; want %v", what, got, err, want)
				}
			}
			for i := range v.Body {
				refused("byte "+strconv.Itoa(i), webhook.ErrSignature, func(m *webhook.Message) { m.Body[i] ^= 1 })
			}
			refused("cut short", webhook.ErrSignature, func(m *webhook.Message) { m.Body = m.Body[:len(m.Body)-1] })
			refused("empty", webhook.ErrSignature, func(m *webhook.Message) { m.Body = nil })
			refused("longer", webhook.ErrSignature, func(m *webhook.Message) { m.Body = append(m.Body, ' ') })
			for name, value := range v.Header {
				if !strings.Contains(strings.ToLower(name), "hmac") && !strings.Contains(strings.ToLower(name), "signature") {
					continue
				}
				refused("no signature", webhook.ErrSignature, func(m *webhook.Message) { m.Header.Del(name) })
				refused("empty signature", webhook.ErrSignature, func(m *webhook.Message) { m.Header.Set(name, "") })
				refused("signature twice", webhook.ErrSignature, func(m *webhook.Message) { m.Header.Add(name, value) })
				refused("signature cut short", webhook.ErrSignature, func(m *webhook.Message) { m.Header.Set(name, value[:20]) })
			}
			if v.Sent != 0 {
				refused("stale", webhook.ErrStale, func(m *webhook.Message) { m.Now = time.Unix(v.Sent+301, 0) })
				refused("future", webhook.ErrStale, func(m *webhook.Message) { m.Now = time.Unix(v.Sent-301, 0) })
			}
		})
	}
}

// A header of its own must be there exactly once, and the time it says is in the signature.
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
				if got, err := p.Verify(m); err == nil {
					t.Errorf("%s, %s: %s %s: %+v", v.Provider, v.Name, name, what, got)
				}
			}
		}
	}
	for name, header := range map[string]string{"standard-webhooks": "Webhook-Timestamp", "slack": "X-Slack-Request-Timestamp"} {
		for _, v := range vectors(t) {
			if v.Provider != name {
				continue
			}
			for _, text := range []string{strconv.FormatInt(v.Sent+1, 10), "", "-1", "+" + v.Header[header], "1e9", " 1", "99999999999999999999", "9999999999999"} {
				m := v.message()
				m.Header.Set(header, text)
				if got, err := provider(t, name, v.Secrets...).Verify(m); err == nil {
					t.Errorf("%s at %q: %+v", name, text, got)
				}
			}
		}
	}
}

// Not every server writes names of headers as net/http does, and a second one in another
// case must not go unseen.
func TestHeadersInAnyCase(t *testing.T) {
	for _, v := range vectors(t) {
		p := provider(t, v.Provider, v.Secrets...)
		m := v.message()
		for name := range v.Header {
			values := m.Header.Values(name)
			m.Header.Del(name)
			m.Header[strings.ToLower(name)] = values
		}
		if got, err := p.Verify(m); err != nil || got.ID != v.ID {
			t.Errorf("%s, %s: %+v, %v", v.Provider, v.Name, got, err)
		}
		for name := range v.Header {
			m := v.message()
			m.Header[strings.ToLower(name)] = []string{"another"}
			if got, err := p.Verify(m); err == nil {
				t.Errorf("%s, %s: %s twice: %+v", v.Provider, v.Name, name, got)
			}
		}
	}
}

// A secret of one version does not verify another, whatever its bytes are: everybody may
// know a public key.
func TestAPublicKeyIsNoSecret(t *testing.T) {
	const whpk = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
	body, now := "{}", time.Unix(1700000000, 0)
	h, err := webhook.Sign("evt_1", now, []byte(body), "whsec_"+strings.TrimPrefix(whpk, "whpk_"))
	if err != nil {
		t.Fatal(err)
	}
	m := &webhook.Message{Header: h, Body: []byte(body), Now: now}
	for _, secrets := range [][]string{{whpk}, {whpk, secret}} {
		if got, err := provider(t, "standard-webhooks", secrets...).Verify(m); !errors.Is(err, webhook.ErrSignature) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	signature := strings.TrimPrefix(h.Get("Webhook-Signature"), "v1,")
	for _, list := range []string{"v1a," + signature, "v2," + signature, "v1" + signature, "V1," + signature, "v1, " + signature, signature} {
		m.Header.Set("Webhook-Signature", list)
		if got, err := provider(t, "standard-webhooks", "whsec_"+strings.TrimPrefix(whpk, "whpk_")).Verify(m); !errors.Is(err, webhook.ErrSignature) {
			t.Errorf("%q: %+v, %v", list, got, err)
		}
	}
}

// A list has as many signatures as a rotation needs, and not as many as a header holds.
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
		for n, want := range map[int]error{10: nil, 16: webhook.ErrSignature, 1000: webhook.ErrSignature} {
			m := v.message()
			m.Header.Set(name, v.Header[name]+strings.Repeat(sep, n))
			if _, err := p.Verify(m); !errors.Is(err, want) {
				t.Errorf("%s with %d more: %v", v.Provider, n, err)
			}
		}
	}
}

func TestAnIDWithADotIsMalformed(t *testing.T) {
	v := vectors(t)[0]
	m := v.message()
	m.Header.Set("Webhook-Id", "msg.1")
	_, err := provider(t, v.Provider, v.Secrets...).Verify(m)
	wantInputError(t, err)
	m.Header.Del("Webhook-Id")
	_, err = provider(t, v.Provider, v.Secrets...).Verify(m)
	wantInputError(t, err)
}

func TestSecretsAreRequired(t *testing.T) {
	for name, preset := range presets {
		for what, secrets := range map[string][]string{"none": nil, "empty": {""}, "one is empty": {secret, ""}} {
			p, err := preset(secrets...)
			if err == nil || p.Verify != nil {
				t.Errorf("%s, %s: %v", name, what, err)
			}
			wantInputError(t, err)
		}
	}
	for what, s := range map[string]string{
		"no prefix": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "prefix alone": "whsec_", "other prefix": "whxx_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX",
		"no base64": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRY!", "short": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRY=",
		"long":    "whsec_" + strings.Repeat("AAAA", 21) + "AAA=",
		"private": "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", "short key": "whpk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX",
	} {
		if _, err := webhook.StandardWebhooks(secret, s); err == nil {
			t.Errorf("%s is accepted", what)
		} else {
			wantInputError(t, err)
		}
	}
}

// Sign makes what the other programs make.
func TestSign(t *testing.T) {
	n := 0
	for _, v := range vectors(t) {
		if len(v.Private) == 0 {
			continue
		}
		n++
		h, err := webhook.Sign(v.ID, time.Unix(v.Sent, 0), []byte(v.Body), v.Private...)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range v.Header {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", v.Name, name, got, want)
			}
		}
	}
	if n < 7 {
		t.Errorf("%d vectors", n)
	}
	for what, call := range map[string]struct {
		id      string
		secrets []string
	}{
		"no id": {"", []string{secret}}, "a dot": {"a.b", []string{secret}}, "a blank": {"a b", []string{secret}}, "a line": {"a\nb", []string{secret}},
		"no secret": {"a", nil}, "an empty one": {"a", []string{secret, ""}}, "a public one": {"a", []string{"whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="}},
		"a short private one": {"a", []string{"whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"}}, "no base64": {"a", []string{"whsk_!"}},
	} {
		h, err := webhook.Sign(call.id, time.Unix(1, 0), nil, call.secrets...)
		if h != nil {
			t.Errorf("%s: %v", what, h)
		}
		wantInputError(t, err)
	}
}

// The signature of Slack's own page is a slash command's: verified, and no event.
func TestSlackCommandsAreNoEvents(t *testing.T) {
	const command = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	h := http.Header{}
	h.Set("X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503")
	h.Set("X-Slack-Request-Timestamp", "1531420618")
	p := provider(t, "slack", "8f742231b10e8888abcd99yyyzzz85a5")
	m := &webhook.Message{Header: h, Body: []byte(command), Now: time.Unix(1531420618, 0)}
	_, err := p.Verify(m)
	wantInputError(t, err)
	if err == nil || !strings.Contains(err.Error(), "slash command") {
		t.Errorf("got %v", err)
	}
	m.Body[0] ^= 1
	if _, err := p.Verify(m); !errors.Is(err, webhook.ErrSignature) {
		t.Errorf("forged: %v", err)
	}
}

func TestAnIDInTheBodyIsRequired(t *testing.T) {
	p, err := webhook.HMAC(webhook.HMACConfig{
		Name: "x", Secrets: []string{"s"}, Header: "S", IDMember: "id", Horizon: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	var input *dedup.InputError
	for _, body := range []string{`{}`, `[]`, `no`, `{"id":""}`, `{"id":{}}`, `{"id":null}`} {
		m := &webhook.Message{Header: http.Header{"S": {hexMAC("s", body)}}, Body: []byte(body)}
		if got, err := p.Verify(m); !errors.As(err, &input) {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
}
