package webhook_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
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

func hexMAC(secret, text string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

func base() webhook.HMACConfig {
	return webhook.HMACConfig{
		Name: "acme", Secrets: []string{"old", "new"}, Header: "X-Sig", Prefix: "v1=",
		IDHeader: "X-Id", TypeMember: "kind", Horizon: time.Hour,
	}
}

func TestHMAC(t *testing.T) {
	const body = `{"kind":"paid","n":7}`
	now := time.Unix(1700000000, 0)
	for name, row := range map[string]struct {
		change func(*webhook.HMACConfig)
		sig    string
		want   webhook.Identity
	}{
		"body alone": {func(*webhook.HMACConfig) {}, "v1=" + hexMAC("new", body),
			webhook.Identity{ID: "e1", Type: "paid"}},
		"id, time and body": {func(c *webhook.HMACConfig) {
			c.Content, c.TimestampHeader = "v1:{id}.{timestamp}.{body}", "X-Time"
		}, "v1=" + hexMAC("old", "v1:e1.1699999999."+body),
			webhook.Identity{ID: "e1", Type: "paid", Signed: true, Sent: time.Unix(1699999999, 0)}},
		"body first": {func(c *webhook.HMACConfig) {
			c.Content = "{body}|{id}"
		}, "v1=" + hexMAC("old", body+"|e1"),
			webhook.Identity{ID: "e1", Type: "paid", Signed: true}},
		"id in the body": {func(c *webhook.HMACConfig) {
			c.IDHeader, c.IDMember = "", "n"
		}, "v1=" + hexMAC("old", body), webhook.Identity{ID: "7", Type: "paid", Signed: true}},
		"SHA-1, base64": {func(c *webhook.HMACConfig) {
			c.Hash, c.Encoding, c.Prefix, c.TypeMember, c.TypeHeader = sha1.New, webhook.Base64,
				"", "", "X-Type"
		}, func() string {
			mac := hmac.New(sha1.New, []byte("new"))
			mac.Write([]byte(body))
			return base64.StdEncoding.EncodeToString(mac.Sum(nil))
		}(), webhook.Identity{ID: "e1", Type: "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := base()
			row.change(&cfg)
			p, err := webhook.HMAC(cfg)
			require.NoError(t, err)
			h := http.Header{"X-Sig": {row.sig}, "X-Id": {"e1"}, "X-Time": {"1699999999"},
				"X-Type": {"other"}}
			got, err := p.Verify(&webhook.Message{Header: h, Body: []byte(body), Now: now})
			require.NoError(t, err)
			assert.Equal(t, row.want.ID, got.ID)
			assert.Equal(t, row.want.Type, got.Type)
			assert.Equal(t, row.want.Signed, got.Signed)
			assert.True(t, got.Sent.Equal(row.want.Sent))
			for what, change := range map[string]func(http.Header){
				"another": func(h http.Header) { h.Set("X-Sig", "v1="+hexMAC("none", body)) },
				"missing": func(h http.Header) { h.Del("X-Sig") },
				"prefix":  func(h http.Header) { h.Set("X-Sig", "v2="+row.sig) },
				"twice":   func(h http.Header) { h.Add("X-Sig", row.sig) },
			} {
				bad := h.Clone()
				change(bad)
				_, err := p.Verify(&webhook.Message{Header: bad, Body: []byte(body), Now: now})
				assert.ErrorIs(t, err, webhook.ErrSignature, what)
			}
			if cfg.TimestampHeader != "" {
				for _, off := range []time.Duration{-302 * time.Second, 302 * time.Second} {
					_, err := p.Verify(&webhook.Message{Header: h, Body: []byte(body),
						Now: now.Add(off)})
					assert.ErrorIs(t, err, webhook.ErrStale, off)
				}
			}
		})
	}
}

// One signed text must not be two messages: the border between id and body cannot move.
func TestHMACBordersDoNotMove(t *testing.T) {
	for _, content := range []string{"{id}.{body}", "{body}.{id}"} {
		cfg := base()
		cfg.Content, cfg.TypeMember = content, ""
		p, err := webhook.HMAC(cfg)
		require.NoError(t, err)
		h := http.Header{"X-Sig": {"v1=" + hexMAC("old", "a.b.c")}}
		accepted := 0
		for _, split := range [][2]string{{"a", "b.c"}, {"a.b", "c"}, {"c", "a.b"}, {"b.c", "a"}} {
			h.Set("X-Id", split[0])
			_, err := p.Verify(&webhook.Message{Header: h, Body: []byte(split[1])})
			if err == nil {
				accepted++
			}
		}
		assert.Equal(t, 1, accepted, content)
	}
}

// The border also cannot move if a separator overlaps with itself or with the text before it.
func TestHMACSeparatorsThatOverlap(t *testing.T) {
	for _, row := range []struct {
		content, text string
		splits        [][2]string // id, body
	}{
		{"{id}aa{body}", "xaaay", [][2]string{{"x", "ay"}, {"xa", "y"}}},
		{"{body}aa{id}", "xaaay", [][2]string{{"y", "xa"}, {"ay", "x"}}},
		{"{id}.x.{body}", "a.x.x.b", [][2]string{{"a", "x.b"}, {"a.x", "b"}}},
	} {
		cfg := base()
		cfg.Content, cfg.TypeMember = row.content, ""
		p, err := webhook.HMAC(cfg)
		require.NoError(t, err)
		accepted := 0
		for _, split := range row.splits {
			h := http.Header{"X-Sig": {"v1=" + hexMAC("old", row.text)}, "X-Id": {split[0]}}
			if _, err := p.Verify(&webhook.Message{Header: h, Body: []byte(split[1])}); err == nil {
				accepted++
			}
		}
		assert.Equal(t, 1, accepted, row.content)
	}
}

// Every short text is split at every place. At most one of these messages is accepted.
func TestHMACEveryTextIsOneMessage(t *testing.T) {
	const longest = 8
	messages := 0
	for _, separator := range []string{"a", "aa", "ab", "aba", "abab"} {
		for _, idFirst := range []bool{true, false} {
			cfg := base()
			cfg.TypeMember, cfg.Prefix = "", ""
			cfg.Content = "{body}" + separator + "{id}"
			if idFirst {
				cfg.Content = "{id}" + separator + "{body}"
			}
			p, err := webhook.HMAC(cfg)
			require.NoError(t, err)
			for n := 1; n < 2<<longest; n++ {
				// texts of two letters
				text := strings.NewReplacer("0", "a",
					"1", "b").Replace(strconv.FormatInt(int64(n), 2)[1:])
				signature := hexMAC("old", text)
				accepted := 0
				for at := 0; at+len(separator) <= len(text); at++ {
					id, body := text[:at], text[at+len(separator):]
					if text[at:at+len(separator)] != separator {
						continue
					}
					if !idFirst {
						id, body = body, id
					}
					if _, err := verified(p, body,
						map[string]string{"X-Sig": signature, "X-Id": id}); err == nil {
						accepted++
					}
				}
				messages += accepted
				assert.LessOrEqual(t, accepted, 1, "%s: %q", cfg.Content, text)
			}
		}
	}
	assert.GreaterOrEqual(t, messages, 1000, "nearly all messages are refused")
}

// Text before the first place or after the last one moves no border.
func TestHMACTextAtTheEnds(t *testing.T) {
	cfg := base()
	cfg.Content, cfg.TypeMember = "e{id}.{body}.e", ""
	p, err := webhook.HMAC(cfg)
	require.NoError(t, err)
	h := http.Header{"X-Sig": {"v1=" + hexMAC("old", "eevt_1.{}.e")}, "X-Id": {"evt_1"}}
	got, err := p.Verify(&webhook.Message{Header: h, Body: []byte("{}")})
	require.NoError(t, err)
	assert.Equal(t, "evt_1", got.ID)
}

func TestHMACRefuses(t *testing.T) {
	for name, change := range map[string]func(*webhook.HMACConfig){
		"no name":                 func(c *webhook.HMACConfig) { c.Name = "" },
		"no secret":               func(c *webhook.HMACConfig) { c.Secrets = nil },
		"an empty secret":         func(c *webhook.HMACConfig) { c.Secrets = []string{"a", ""} },
		"no header":               func(c *webhook.HMACConfig) { c.Header = "" },
		"unknown encoding":        func(c *webhook.HMACConfig) { c.Encoding = 2 },
		"no id":                   func(c *webhook.HMACConfig) { c.IDHeader = "" },
		"two ids":                 func(c *webhook.HMACConfig) { c.IDMember = "id" },
		"two types":               func(c *webhook.HMACConfig) { c.TypeHeader = "X-Type" },
		"no horizon":              func(c *webhook.HMACConfig) { c.Horizon = 0 },
		"body limit":              func(c *webhook.HMACConfig) { c.BodyLimit = -1 },
		"tolerance":               func(c *webhook.HMACConfig) { c.Tolerance = -1 },
		"body not signed":         func(c *webhook.HMACConfig) { c.Content = "{id}" },
		"body twice":              func(c *webhook.HMACConfig) { c.Content = "{body}.{body}" },
		"side by side":            func(c *webhook.HMACConfig) { c.Content = "{id}{body}" },
		"unknown place":           func(c *webhook.HMACConfig) { c.Content = "{ID}.{body}" },
		"time that is not signed": func(c *webhook.HMACConfig) { c.TimestampHeader = "X-Time" },
		"signed time without header": func(c *webhook.HMACConfig) {
			c.Content = "{timestamp}.{body}"
		},
		"signed id without header": func(c *webhook.HMACConfig) {
			c.Content, c.IDHeader, c.IDMember = "{id}.{body}", "", "id"
		},
	} {
		cfg := base()
		change(&cfg)
		_, err := webhook.HMAC(cfg)
		assert.ErrorAs(t, err, new(*dedup.InputError), name)
	}
}
