package webhook

import (
	"crypto/hmac"
	"crypto/sha1" // of Twilio's signatures
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Twilio returns the provider for webhooks of Twilio (twilio.com/docs/usage/webhooks/
// webhooks-security). X-Twilio-Signature is base64 of HMAC-SHA1, under the account's auth token, of
// the URL followed by the sorted form parameters, name and value without separators. With the
// SharedKey of a webhook rule it is HMAC-SHA256: pass that key as a token. A JSON body is signed by
// its SHA-256, which is bodySHA256 in the query of the URL.
//
// publicURL has the scheme, host and path that Twilio calls, without a query: behind a proxy the
// receiver cannot know them. The query is taken from the request, so no proxy may change it. Twilio
// signs some URLs with their port and some without, and both are accepted, as in twilio-go.
//
// Twilio signs no id and no time. The signed text has no separators and does not depend on the
// order of the parameters, so different bodies can have the same signature, and the body cannot be
// the key. The id is a digest of the signed text: a captured delivery in another form is a
// duplicate, and two events with equal parameters are one event. I-Twilio-Idempotency-Token is not
// signed, and not used. Type is the first of the parameters EventType, MessageStatus and CallStatus
// that is there.
//
// The answer has no body, so use it for status callbacks and not for requests that expect TwiML.
// Twilio retries callbacks within 15 seconds, and Event Streams for four hours
// (twilio.com/docs/events/event-delivery-and-duplication), which is Horizon. A delivery of Event
// Streams is a batch, and has one id here; the events in it have ids of their own. Bodies have up
// to 1 MiB here; Twilio documents no limit.
//
// No token, an empty token and a URL of another form are an [*dedup.InputError].
func Twilio(publicURL string, tokens ...string) (Provider, error) {
	macs, err := newMACs(secretSetting{field: "webhook.Twilio.tokens", noun: "token",
		right: "the auth token of the account"}, tokens)
	if err != nil {
		return Provider{}, err
	}
	t := twilio{url: publicURL, sha1: macs, sha256: macs}
	t.sha1.hash = sha1.New
	if t.otherPort, err = otherPort(publicURL); err != nil {
		return Provider{}, err
	}
	precheck := func(h http.Header, _ time.Time) error {
		_, err := t.signature(h)
		return err
	}
	return Provider{Name: "twilio", Horizon: 4 * time.Hour, BodyLimit: defaultBodyLimit,
		Precheck: precheck, Verify: t.verify}, nil
}

type twilio struct {
	url, otherPort string
	sha1, sha256   macs
}

// otherPort returns the URL without its port, or with the port of its scheme if it has none.
func otherPort(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" ||
		strings.ContainsAny(text, "?#") {
		return "", bad("publicURL", "must be http or https with a host, without ? and #")
	}
	scheme, rest, _ := strings.Cut(text, "://")
	authority, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		authority, path = rest[:slash], rest[slash:]
	}
	switch port := u.Port(); {
	case port != "":
		authority = strings.TrimSuffix(authority, ":"+port)
	case u.Scheme == "https":
		authority += ":443"
	default:
		authority += ":80"
	}
	return scheme + "://" + authority + path, nil
}

func (t *twilio) signature(h http.Header) ([]byte, error) {
	header, ok := line(h, "X-Twilio-Signature")
	data, err := strictBase64.DecodeString(header)
	if !ok || err != nil || len(data) != sha1.Size && len(data) != sha256.Size {
		return nil, ErrSignature
	}
	return data, nil
}

func (t *twilio) verify(m *Message) (Identity, error) {
	signature, err := t.signature(m.Header)
	if err != nil {
		return Identity{}, err
	}
	form, err := twilioForm(m)
	if err != nil {
		return Identity{}, err
	}
	signed := twilioText(m.Query, form)
	keys := &t.sha1
	if len(signature) == sha256.Size {
		keys = &t.sha256
	}
	if !keys.match([][]byte{signature}, []byte(t.url), signed) &&
		!keys.match([][]byte{signature}, []byte(t.otherPort), signed) {
		return Identity{}, ErrSignature
	}
	i := Identity{ID: digest([]byte(t.url), signed), Signed: true}
	for _, name := range []string{"EventType", "MessageStatus", "CallStatus"} {
		if i.Type = form.Get(name); i.Type != "" {
			break
		}
	}
	return i, nil
}

// twilioForm returns the form parameters, or none if the query has the digest of the body.
func twilioForm(m *Message) (url.Values, error) {
	query, err := url.ParseQuery(m.Query)
	if err != nil {
		return nil, ErrSignature
	}
	digests, ok := query["bodySHA256"]
	if !ok {
		form, err := url.ParseQuery(string(m.Body))
		if err != nil {
			return nil, ErrSignature
		}
		return form, nil
	}
	sum := sha256.Sum256(m.Body)
	if len(digests) != 1 || !hmac.Equal([]byte(digests[0]), []byte(hex.EncodeToString(sum[:]))) {
		return nil, ErrSignature
	}
	return nil, nil
}

// twilioText returns the part of the signed text after the path. If a parameter has equal values,
// one of them is signed, as in twilio-node.
func twilioText(query string, form url.Values) []byte {
	var b []byte
	if query != "" {
		b = append(append(b, '?'), query...)
	}
	names := make([]string, 0, len(form))
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := slices.Clone(form[name])
		slices.Sort(values)
		for _, value := range slices.Compact(values) {
			b = append(append(b, name...), value...)
		}
	}
	return b
}
