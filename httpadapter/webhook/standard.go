package webhook

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of Standard Webhooks.
const (
	idHeader        = "Webhook-Id"
	timestampHeader = "Webhook-Timestamp"
	signatureHeader = "Webhook-Signature"
)

const (
	minSecret = 24 // bytes, of the specification
	maxSecret = 64
)

// StandardWebhooks is a provider that sends as Standard Webhooks 1.0.0 says
// (github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md). The headers are
// webhook-id, webhook-timestamp and webhook-signature. The last one has signatures of
// `id.timestamp.body`, HMAC-SHA256 (v1) or ed25519 (v1a), and several of them while a secret is
// rotated. The timestamp may be off by five minutes. Senders hosted by Svix name the headers
// svix-id, svix-timestamp and svix-signature: either set is read, and a message with headers of
// both is malformed. The id is signed, and stays the same while the timestamp changes. Horizon is
// 75 h 35 min, the end of the retry schedule in the specification's example: change it for a
// provider with another schedule. Type is the body's member type.
//
// A secret is `whsec_` and base64 of 24-64 bytes, for v1, or `whpk_` and base64 of an ed25519
// public key, for v1a. Each is used for its own version only: a public key, which anybody may know,
// is never used as the secret of an HMAC. No secrets, and text that is not a secret, are an
// [*dedup.InputError].
func StandardWebhooks(secrets ...string) (Provider, error) {
	s := standard{macs: macs{hash: sha256.New}}
	if len(secrets) == 0 {
		return Provider{}, verifying.none()
	}
	for i, secret := range secrets {
		if err := s.add(i, len(secrets), secret); err != nil {
			return Provider{}, err
		}
	}
	return Provider{Name: "standard-webhooks", Horizon: 75*time.Hour + 35*time.Minute,
		BodyLimit: defaultBodyLimit, Precheck: s.precheck, Verify: s.verify}, nil
}

// verifying and signing are the settings of [StandardWebhooks] and [Sign].
var (
	verifying = secretSetting{field: "webhook.StandardWebhooks.secrets", noun: "secret",
		right: "whsec_ and base64 of 24-64 bytes, or whpk_ and base64 of an ed25519 public key"}
	signing = secretSetting{field: "webhook.Sign.secrets", noun: "secret",
		right: "whsec_ and base64 of 24-64 bytes, or whsk_ and base64 of an ed25519 private key"}
)

type standard struct {
	macs macs
	keys []ed25519.PublicKey
}

// add adds secret i of n.
func (s *standard) add(i, n int, secret string) error {
	if encoded, ok := strings.CutPrefix(secret, "whpk_"); ok {
		data, err := strictBase64.DecodeString(encoded)
		switch {
		case err != nil:
			return verifying.malformed(i, n, "is not base64 after whpk_")
		case len(data) != ed25519.PublicKeySize:
			return verifying.malformed(i, n, "has %d bytes after whpk_, and must have %d",
				len(data), ed25519.PublicKeySize)
		}
		s.keys = append(s.keys, data)
		return nil
	}
	if strings.HasPrefix(secret, "whsk_") {
		return verifying.malformed(i, n, "is a private key, which only the sender may have")
	}
	data, err := verifying.symmetric(i, n, secret)
	if err != nil {
		return err
	}
	s.macs.secrets = append(s.macs.secrets, data)
	return nil
}

// symmetric returns the bytes of secret i of n, which is for v1.
func (s secretSetting) symmetric(i, n int, secret string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	data, err := strictBase64.DecodeString(encoded)
	switch {
	case secret == "":
		return nil, s.empty(i, n)
	case !ok:
		return nil, s.malformed(i, n, "has another prefix, or none")
	case err != nil:
		return nil, s.malformed(i, n, "is not base64 after whsec_")
	case len(data) < minSecret || len(data) > maxSecret:
		return nil, s.malformed(i, n, "has %d bytes after whsec_", len(data))
	}
	return data, nil
}

// precheck is the part of verify that needs no body.
func (s *standard) precheck(h http.Header, now time.Time) error {
	_, err := s.said(h, now)
	return err
}

// standardSaid has what the headers of a message say.
type standardSaid struct {
	id, timestamp string
	sent          time.Time
	v1, v1a       [][]byte
}

func (s *standard) said(h http.Header, now time.Time) (m standardSaid, err error) {
	names, err := headerNames(h)
	if err != nil {
		return m, err
	}
	id, okID := line(h, names.id)
	timestamp, okTime := line(h, names.timestamp)
	list, okList := line(h, names.signature)
	switch {
	case !okList:
		return m, noHeader(names.signature)
	case !okTime:
		return m, noHeader(names.timestamp)
	}
	if !okID || strings.Contains(id, ".") { // with a dot, two messages can have one signed text
		return m, bad(names.id, "is missing, twice there, or has a dot")
	}
	m = standardSaid{id: id, timestamp: timestamp}
	if m.sent, err = fresh(timestamp, now, tolerance); err != nil {
		return m, err
	}
	var ok bool
	if m.v1, m.v1a, ok = signatures(list); !ok || len(m.v1)+len(m.v1a) == 0 {
		return m, noHeader(names.signature)
	}
	return m, nil
}

func (s *standard) verify(m *Message) (Identity, error) {
	h, err := s.said(m.Header, m.Now)
	if err != nil {
		return Identity{}, err
	}
	head := []byte(h.id + "." + h.timestamp + ".")
	if !s.macs.match(h.v1, head, m.Body) && !s.matchKeys(h.v1a, head, m.Body) {
		return Identity{}, errNoMatch
	}
	said, err := members(m.Body, "type")
	if err != nil {
		return Identity{}, err
	}
	return Identity{ID: h.id, Type: text(said["type"]), Signed: true, Sent: h.sent}, nil
}

// signatures splits a list into the signatures of v1 and v1a. It ignores other versions, as the
// specification says. It reports false if there are too many.
func signatures(list string) (v1, v1a [][]byte, ok bool) {
	n := 0
	for entry := range strings.SplitSeq(list, " ") {
		if n++; n > maxSignatures {
			return nil, nil, false
		}
		version, text, _ := strings.Cut(entry, ",")
		data, err := strictBase64.DecodeString(text)
		switch {
		case err != nil:
		case version == "v1":
			v1 = append(v1, data)
		case version == "v1a":
			v1a = append(v1a, data)
		}
	}
	return v1, v1a, true
}

func (s *standard) matchKeys(list [][]byte, head, body []byte) bool {
	if len(list) == 0 || len(s.keys) == 0 {
		return false
	}
	text := append(head[:len(head):len(head)], body...)
	for _, key := range s.keys {
		for _, signature := range list {
			if ed25519.Verify(key, text, signature) {
				return true
			}
		}
	}
	return false
}

// Sign returns the headers of a message as [StandardWebhooks] expects them, for senders and for
// tests. They have one signature for each secret, in order, so that a receiver may have the old
// secret or the new one. A secret is `whsec_` and base64 of 24-64 bytes (v1), or `whsk_` and base64
// of an ed25519 private key, of 64 bytes or its seed of 32 (v1a). id stays the same when a message
// is sent again, and sent is the time of the attempt.
//
// No secrets, text that is not a secret, and an id that is empty, has a dot or has anything except
// visible ASCII are an [*dedup.InputError].
func Sign(id string, sent time.Time, body []byte, secrets ...string) (http.Header, error) {
	if id == "" || strings.ContainsFunc(id, func(c rune) bool {
		return c <= ' ' || c > '~' || c == '.'
	}) {
		return nil, bad("id", "is empty, or has a dot, a blank or what is not ASCII")
	}
	if len(secrets) == 0 {
		return nil, signing.none()
	}
	timestamp := strconv.FormatInt(sent.Unix(), 10)
	text := append([]byte(id+"."+timestamp+"."), body...)
	var list []string
	for i, secret := range secrets {
		signature, err := signOne(i, len(secrets), secret, text)
		if err != nil {
			return nil, err
		}
		list = append(list, signature)
	}
	h := http.Header{}
	h.Set(idHeader, id)
	h.Set(timestampHeader, timestamp)
	h.Set(signatureHeader, strings.Join(list, " "))
	return h, nil
}

func signOne(i, n int, secret string, text []byte) (string, error) {
	if encoded, ok := strings.CutPrefix(secret, "whsk_"); ok {
		data, err := strictBase64.DecodeString(encoded)
		switch {
		case err == nil && len(data) == ed25519.SeedSize:
			data = ed25519.NewKeyFromSeed(data)
		case err != nil || len(data) != ed25519.PrivateKeySize:
			return "", signing.malformed(i, n, "is not base64 of a private key after whsk_")
		}
		return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(data, text)), nil
	}
	if strings.HasPrefix(secret, "whpk_") {
		return "", signing.malformed(i, n, "is a public key, which cannot sign")
	}
	data, err := signing.symmetric(i, n, secret)
	if err != nil {
		return "", err
	}
	m := macs{hash: sha256.New}
	return "v1," + base64.StdEncoding.EncodeToString(m.sum(data, text)), nil
}
