package webhook

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"hash"
	"net/http"
	"strings"
	"time"
)

// Encoding is how a signature is written.
type Encoding int

// Encodings of a signature.
const (
	Hex Encoding = iota
	Base64
)

// HMACConfig describes a provider that signs with an HMAC.
type HMACConfig struct {
	// Name of the provider. Required.
	Name string
	// Secrets with which a signature may be made, used as they are. Required.
	Secrets []string
	// Header has the signature, Prefix is the text before it there, and Encoding is how it is
	// written. A sender that rotates its secret may send several signatures, each with Prefix. They
	// are separated by blanks or commas, unless Prefix itself has that character. One that was made
	// with one of Secrets is enough. Entries of another form are ignored, and more than 16
	// signatures are refused. Header is required; default no prefix, Hex.
	Header   string
	Prefix   string
	Encoding Encoding
	// Hash of the HMAC. Default SHA-256.
	Hash func() hash.Hash
	// Content is what is signed: text in which {body} stands for the body, {id} for the value of
	// IDHeader and {timestamp} for that of TimestampHeader, as in "{id}.{timestamp}.{body}". {body}
	// occurs exactly once, the others at most once, and some text must separate them. A message is
	// malformed if its id or time contains that separator, or forms it together with what follows:
	// the signed text could then be split in another way. Default "{body}".
	Content string
	// IDHeader names the header with the id of an event, or IDMember the member of a JSON body: one
	// of the two is required. The id is signed if it is in the body or in Content. If it is not
	// signed, nothing that is signed distinguishes two events with the same type and the same bytes
	// as body: the second one is refused with 422, unless [Config].Relabelled is set.
	IDHeader, IDMember string
	// TypeHeader, or TypeMember, has the type of an event. Default none.
	TypeHeader, TypeMember string
	// TimestampHeader has the signed time of an attempt, in Unix seconds, and Tolerance is how far
	// it may be off in either direction. Default none, 5 min.
	TimestampHeader string
	Tolerance       time.Duration
	// Horizon and BodyLimit are those of the [Provider]. Horizon is required.
	Horizon   time.Duration
	BodyLimit int
}

// HMAC returns the provider that cfg describes. A field that is missing, or contradicts another,
// is a [*dedup.InputError].
func HMAC(cfg HMACConfig) (Provider, error) {
	h := hmacProvider{cfg: cfg}
	if h.cfg.Content == "" {
		h.cfg.Content = "{body}"
	}
	if h.cfg.Tolerance == 0 {
		h.cfg.Tolerance = tolerance
	}
	var err error
	h.keys, err = newMACs(secretSetting{field: "webhook.HMACConfig.Secrets", noun: "secret",
		right: "the text that you share with the sender"}, cfg.Secrets)
	if err != nil {
		return Provider{}, err
	}
	if cfg.Hash != nil {
		h.keys.hash = cfg.Hash
	}
	if h.content, err = parseContent(h.cfg.Content); err != nil {
		return Provider{}, err
	}
	if err := h.check(); err != nil {
		return Provider{}, err
	}
	p := Provider{Name: cfg.Name, Horizon: cfg.Horizon, BodyLimit: cfg.BodyLimit,
		Precheck: h.precheck, Verify: h.verify}
	return p, p.check()
}

type hmacProvider struct {
	cfg     HMACConfig
	keys    macs
	content []piece
}

// piece is a part of the signed content: text, or the name of a value.
type piece struct {
	text string
	name string // body, id or timestamp
}

var places = []string{"body", "id", "timestamp"}

// parseContent splits the description of what is signed into pieces. It refuses two values without
// text between them: the signed text could be split in two ways, so that two messages had the same
// signature.
func parseContent(content string) ([]piece, error) {
	const field = "webhook.HMACConfig.Content"
	var list []piece
	for rest := content; rest != ""; {
		at, name := len(rest), ""
		for _, p := range places {
			if i := strings.Index(rest, "{"+p+"}"); i >= 0 && i < at {
				at, name = i, p
			}
		}
		if at > 0 {
			if strings.ContainsAny(rest[:at], "{}") {
				return nil, bad(field, "has %q, where only {body}, {id} and {timestamp} are known",
					rest[:at])
			}
			list = append(list, piece{text: rest[:at]})
			rest = rest[at:]
		}
		if name == "" {
			break
		}
		if n := len(list); n > 0 && list[n-1].name != "" {
			return nil, bad(field, "has {%s} and {%s} side by side", list[n-1].name, name)
		}
		list = append(list, piece{name: name})
		rest = rest[len(name)+2:]
	}
	for _, p := range places {
		if n := strings.Count(content, "{"+p+"}"); n > 1 || p == "body" && n != 1 {
			return nil, bad(field, "has {%s} %d times", p, n)
		}
	}
	return list, nil
}

func (h *hmacProvider) signs(name string) bool {
	return strings.Contains(h.cfg.Content, "{"+name+"}")
}

func (h *hmacProvider) check() error {
	c := &h.cfg
	const field = "webhook.HMACConfig."
	switch {
	case c.Header == "":
		return bad(field+"Header", "is empty")
	case c.Encoding != Hex && c.Encoding != Base64:
		return bad(field+"Encoding", "is %d; it must be Hex or Base64", c.Encoding)
	case (c.IDHeader == "") == (c.IDMember == ""):
		return bad(field+"IDHeader", "or IDMember must say where the id is, and not both")
	case c.TypeHeader != "" && c.TypeMember != "":
		return bad(field+"TypeHeader", "and TypeMember are both set")
	case h.signs("id") && c.IDHeader == "":
		return bad(field+"Content", "has {id}, and there is no IDHeader")
	case h.signs("timestamp") != (c.TimestampHeader != ""):
		return bad(field+"TimestampHeader",
			"must be in Content as {timestamp}: a time that is not signed proves nothing")
	case c.Tolerance < 0:
		return bad(field+"Tolerance", "is %v; it must not be negative", c.Tolerance)
	}
	return nil
}

// precheck is the part of verify that needs no body.
func (h *hmacProvider) precheck(header http.Header, now time.Time) error {
	if _, err := h.signatures(header); err != nil {
		return err
	}
	_, _, err := h.time(header, now)
	return err
}

// time returns the signed time of an attempt, if the provider has one.
func (h *hmacProvider) time(header http.Header, now time.Time) (timestamp string, sent time.Time,
	err error) {
	if h.cfg.TimestampHeader == "" {
		return "", time.Time{}, nil
	}
	timestamp, _ = line(header, h.cfg.TimestampHeader)
	sent, err = fresh(timestamp, now, h.cfg.Tolerance)
	return timestamp, sent, err
}

func (h *hmacProvider) verify(m *Message) (Identity, error) {
	signatures, err := h.signatures(m.Header)
	if err != nil {
		return Identity{}, err
	}
	var i Identity
	timestamp, sent, err := h.time(m.Header, m.Now)
	if err != nil {
		return Identity{}, err
	}
	i.Sent = sent
	id := ""
	if h.cfg.IDHeader != "" {
		id, _ = line(m.Header, h.cfg.IDHeader)
	}
	parts, err := h.parts(id, timestamp, m.Body)
	if err != nil {
		return Identity{}, err
	}
	if !h.keys.match(signatures, parts...) {
		return Identity{}, errNoMatch
	}
	i.ID, i.Signed = id, h.signs("id")
	return h.identify(m, i)
}

// signatures returns the signatures in the header that have the configured form: at least one, and
// at most maxSignatures.
func (h *hmacProvider) signatures(headers http.Header) (list [][]byte, err error) {
	header, ok := line(headers, h.cfg.Header)
	decode := hex.DecodeString
	if h.cfg.Encoding == Base64 {
		decode = strictBase64.DecodeString
	}
	for _, entry := range strings.FieldsFunc(header, h.separates) {
		text, found := strings.CutPrefix(entry, h.cfg.Prefix)
		if data, err := decode(text); found && err == nil && len(data) > 0 {
			list = append(list, data)
		}
	}
	if !ok || len(list) == 0 || len(list) > maxSignatures {
		return nil, noHeader(h.cfg.Header)
	}
	return list, nil
}

// separates reports whether c separates two signatures. A character of Prefix does not.
func (h *hmacProvider) separates(c rune) bool {
	return (c == ' ' || c == ',') && !strings.ContainsRune(h.cfg.Prefix, c)
}

// parts returns what is signed. A value before the body must not make the separator after it appear
// earlier, and a value after the body must not make the separator before it appear later. Otherwise
// the same text could be split into another message.
func (h *hmacProvider) parts(id, timestamp string, body []byte) ([][]byte, error) {
	var parts [][]byte
	afterBody := false
	for n, p := range h.content {
		value := p.text
		switch p.name {
		case "body":
			parts, afterBody = append(parts, body), true
			continue
		case "id":
			value = id
		case "timestamp":
			value = timestamp
		}
		if p.name != "" && !cutOnce(h.content, n, value, afterBody) {
			return nil, bad(p.name, "has or makes the text that ends it in what is signed")
		}
		parts = append(parts, []byte(value))
	}
	return parts, nil
}

// cutOnce reports whether the separator next to the value at place n occurs only there. A value
// before the body must end at the first separator found from the left; a value after the body must
// begin at the first one found from the right.
func cutOnce(content []piece, n int, value string, afterBody bool) bool {
	if afterBody {
		separator := content[n-1].text
		return strings.LastIndex(separator+value, separator) == 0
	}
	separator := content[n+1].text
	return strings.Index(value+separator, separator) == len(value)
}

// identify adds what the body and other headers say, after the body was verified.
func (h *hmacProvider) identify(m *Message, i Identity) (Identity, error) {
	said, err := h.said(m.Body)
	if err != nil {
		return Identity{}, err
	}
	if h.cfg.IDMember != "" {
		i.ID, i.Signed = textOrNumber(said[h.cfg.IDMember]), true
	}
	switch {
	case h.cfg.TypeMember != "":
		i.Type = textOrNumber(said[h.cfg.TypeMember])
	case h.cfg.TypeHeader != "":
		var ok bool
		if i.Type, ok = line(m.Header, h.cfg.TypeHeader); !ok {
			return Identity{}, bad(h.cfg.TypeHeader, "must be there, once")
		}
	}
	if i.ID == "" {
		return Identity{}, bad("id", "is missing: %s must be there, once, and readable",
			h.cfg.IDHeader+h.cfg.IDMember)
	}
	return i, nil
}

// said returns the members of the body that the configuration names. If it names none, the body
// need not be JSON.
func (h *hmacProvider) said(body []byte) (map[string]json.RawMessage, error) {
	if h.cfg.IDMember == "" && h.cfg.TypeMember == "" {
		return nil, nil
	}
	return members(body, cmp.Or(h.cfg.IDMember, h.cfg.TypeMember),
		cmp.Or(h.cfg.TypeMember, h.cfg.IDMember))
}
