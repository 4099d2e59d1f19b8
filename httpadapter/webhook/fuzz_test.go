package webhook_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/httpadapter/webhook"
)

const fuzzNow = 1700000000

// within computes the five minutes in another way.
func within(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= fuzzNow-300 && n <= fuzzNow+300 && !strings.ContainsAny(text, "+-_")
}

func verified(p webhook.Provider, body string, header map[string]string) (webhook.Identity, error) {
	h := http.Header{}
	for name, value := range header {
		h.Set(name, value)
	}
	return p.Verify(&webhook.Message{Header: h, Body: []byte(body), Now: time.Unix(fuzzNow, 0)})
}

// A message is verified if, and only if, one of its entries is the signature of its text.
func FuzzStandardWebhooks(f *testing.F) {
	key := []byte("0123456789abcdef01234567")
	private := ed25519.NewKeyFromSeed([]byte("0123456789abcdef0123456789abcdef"))
	public := private.Public().(ed25519.PublicKey)
	p := provider(f, "standard-webhooks", "whsec_"+base64.StdEncoding.EncodeToString(key),
		"whpk_"+base64.StdEncoding.EncodeToString(public))
	sign := func(text string) (v1, v1a string) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)),
			"v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte(text)))
	}
	v1, v1a := sign("evt_1.1700000000.{}")
	for _, list := range []string{v1, v1a, v1 + " " + v1a, "v2,x " + v1, v1 + ",", " ", "v1,",
		v1[:20], "v1a," + v1[3:], strings.Repeat(v1a+" ", 20)} {
		f.Add("evt_1", "1700000000", list, "{}")
	}
	f.Add("evt_1.1700000000", "1700000000", v1, "{}")
	f.Add("evt_1", "01700000000", v1, `{"type":1}`)
	f.Add("", "-1", "", "")
	f.Fuzz(func(t *testing.T, id, timestamp, list, body string) {
		if strings.ContainsAny(list, "\r\n") {
			return // a header cannot have line breaks
		}
		v1, v1a := sign(id + "." + timestamp + "." + body)
		entries := strings.Split(list, " ")
		want := id != "" && !strings.Contains(id, ".") && within(timestamp) &&
			len(timestamp) <= 12 && len(entries) <= 16 &&
			(slices.Contains(entries, v1) || slices.Contains(entries, v1a))
		got, err := verified(p, body,
			map[string]string{"webhook-id": id, "webhook-timestamp": timestamp,
				"webhook-signature": list})
		assert.Equal(t, want, err == nil, "%q %q %q %q: %+v, %v; want %v", id, timestamp, list,
			body, got, err, want)
		assert.False(t, want && (got.ID != id || !got.Signed), "%q %q %q %q: %+v, %v; want %v", id,
			timestamp, list, body, got, err, want)
		// A message with a right signature is verified.
		_, err = verified(p, body, map[string]string{"webhook-id": id,
			"webhook-timestamp": timestamp, "webhook-signature": "v1a,AAAA " + v1})
		want = id != "" && !strings.Contains(id, ".") && within(timestamp) && len(timestamp) <= 12
		assert.Equal(t, want, err == nil, err)
	})
}

func FuzzStripe(f *testing.F) {
	p := provider(f, "stripe", "old", "new")
	const body = `{"id":"evt_1","type":"paid"}`
	good := hexMAC("new", "1700000000."+body)
	for _, h := range []string{"t=1700000000,v1=" + good, "t=1700000000,v1=00,v1=" + good,
		"v1=" + good, "t=1700000000,t=1,v1=" + good, "t=,v1", ",,,", "t=1700000000,v0=" + good,
		"t=1700000301,v1=" + good} {
		f.Add(h, body)
	}
	f.Fuzz(func(t *testing.T, header, body string) {
		var times, sums []string
		parts := strings.Split(header, ",")
		for _, part := range parts {
			if text, ok := strings.CutPrefix(part, "t="); ok {
				times = append(times, text)
			}
			if text, ok := strings.CutPrefix(part, "v1="); ok {
				sums = append(sums, strings.ToLower(text))
			}
		}
		want := false
		if len(times) > 0 && within(times[len(times)-1]) && len(parts) <= 16 {
			for _, s := range []string{"old", "new"} {
				want = want || slices.Contains(sums, hexMAC(s, times[len(times)-1]+"."+body))
			}
		}
		got, err := verified(p, body, map[string]string{"Stripe-Signature": header})
		assert.False(t, err == nil && (!want || got.ID == ""), "%q %q: %+v", header, body, got)
	})
}

func FuzzPrefixed(f *testing.F) {
	const body = `{"type":"event_callback","event_id":"Ev1"}`
	f.Add("v0="+hexMAC("s", "v0:1700000000:"+body), "1700000000", body)
	f.Add("sha256="+hexMAC("s", body), "", body)
	f.Add("v0=", "", "")
	f.Add("sha256=zz", "1", "{}")
	slack, github := provider(f, "slack", "s"), provider(f, "github", "s")
	f.Fuzz(func(t *testing.T, signature, timestamp, body string) {
		_, err := verified(slack, body,
			map[string]string{"X-Slack-Signature": signature,
				"X-Slack-Request-Timestamp": timestamp})
		assert.False(t, err == nil &&
			(!within(timestamp) || !strings.EqualFold(signature[3:],
				hexMAC("s", "v0:"+timestamp+":"+body))),
			"Slack: %q %q %q", signature, timestamp, body)
		_, err = verified(github, body,
			map[string]string{"X-Hub-Signature-256": signature, "X-GitHub-Delivery": "1",
				"X-GitHub-Event": "push"})
		want := strings.HasPrefix(signature, "sha256=") &&
			strings.EqualFold(signature[7:], hexMAC("s", body))
		assert.Equal(t, want, err == nil, "GitHub: %q %q", signature, body)
	})
}

// Every description that HMAC accepts signs the body, and Verify never panics.
func FuzzHMACContent(f *testing.F) {
	for _, c := range []string{"{body}", "{id}.{timestamp}.{body}", "{id}{body}", "{body}{body}",
		"{{body}}", "}{", "v1:{body}:{id}", ""} {
		f.Add(c, "e1", "{}")
	}
	f.Fuzz(func(t *testing.T, content, id, body string) {
		cfg := base()
		cfg.Content, cfg.TypeMember, cfg.Prefix = content, "", ""
		if strings.Contains(content, "{timestamp}") {
			cfg.TimestampHeader = "X-Time"
		}
		p, err := webhook.HMAC(cfg)
		if err != nil {
			return
		}
		text := strings.NewReplacer("{id}", id, "{timestamp}", "1700000000", "{body}",
			body).Replace(content)
		if content == "" {
			text = body
		}
		header := map[string]string{"X-Sig": hexMAC("old", text), "X-Id": id,
			"X-Time": "1700000000"}
		got, err := verified(p, body, header)
		assert.False(t, err == nil && got.ID != id, "%q: %+v", content, got)
		_, err = verified(p, body+"x", header)
		assert.Error(t, err, "%q does not sign the body", content)
	})
}

// Members finds the same members as encoding/json, if no name is there twice.
func FuzzMembers(f *testing.F) {
	for _, body := range []string{`{"id":"1"}`, `{"id":1,"type":"paid"}`,
		`{"id":{},"a":[{"id":1}],"type":null}`, `{"\u0069d":"1"}`, `{"id":"1","id":"2"}`,
		`{"ID":1}`, `{"id":1,}`, `{"id" 1}`, `{"id":1}}`, "[]", "\xff", `{"id":"\ud800"}`} {
		f.Add(body)
	}
	p := signedBy(f, "acme")
	f.Fuzz(func(t *testing.T, body string) {
		got, err := verified(p, body, map[string]string{"X-Sig": hexMAC(secret, body)})
		if err != nil && strings.Contains(err.Error(), "twice") {
			assert.False(t, !strings.Contains(body, `\`) && strings.Count(body, `"id"`) < 2 &&
				strings.Count(body, `"type"`) < 2, "%q: %v", body, err)
			return
		}
		var all map[string]any
		dec := json.NewDecoder(strings.NewReader(body))
		dec.UseNumber()
		if !json.Valid([]byte(body)) || dec.Decode(&all) != nil {
			all = nil
		}
		want := map[string]string{}
		for name, value := range all {
			switch v := value.(type) {
			case string:
				if !strings.Contains(v, "\uFFFD") {
					want[name] = v
				}
			case json.Number:
				want[name] = v.String()
			}
		}
		assert.Equal(t, want["id"] != "", err == nil, body)
		assert.False(t, err == nil && (got.ID != want["id"] || got.Type != want["type"]),
			"%q: %+v, %v; want %q", body, got, err, want)
	})
}
