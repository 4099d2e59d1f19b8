package webhook

import (
	"crypto/sha256"
	"crypto/x509"
	"hash/crc32"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	payPalHorizon   = 30 * day
	minRSASignature = 128 // bytes, of a key of 1,024 bits
)

// PayPalConfig describes the webhooks of an app at PayPal.
type PayPalConfig struct {
	// WebhookIDs are the ids that PayPal has given the endpoint; a signature for one of them is
	// enough. WEBHOOK_ID is the id of PayPal's simulator, which anybody can make send events, so
	// never use it in production. Required.
	WebhookIDs []string
	// Transport fetches PayPal's certificates, from https URLs of hosts below paypal.com, at most 8
	// times a minute and for at most 10 s each. It is called inside Verify, by one goroutine at a
	// time. Default http.DefaultTransport.
	Transport http.RoundTripper
	// Roots sign the certificates. Default those of the system.
	Roots *x509.CertPool
}

// PayPal returns the provider for webhooks of PayPal (developer.paypal.com/api/rest/webhooks/rest).
// PAYPAL-TRANSMISSION-SIG is base64 of an RSA signature with SHA-256, of `transmission
// id|time|webhook id|crc`; crc is the CRC-32 of the body, in decimal. The key is in the certificate
// at PAYPAL-CERT-URL. The sender chooses that URL, so it is fetched only over TLS from a host below
// paypal.com, at the path of PayPal's certificates, without redirects, and up to 64 KiB. The
// certificate must be for a host below paypal.com, and chain up to Roots when the message arrives.
// 16 certificates are kept.
//
// A CRC-32 is easy to forge: anybody with a captured delivery can make another body with the same
// one. So the receiver binds a transmission id to the first event that comes with it, and refuses
// the same transmission with another event id. It remembers this in the memory of its process, for
// at least the last 65,536 transmissions. If an event matters, ask PayPal's API for it.
//
// The id is the body's id, which stays the same when PayPal retries, and Type is its event_type.
// PayPal retries for three days, and events of the last 30 days can be resent by hand
// (api/rest/webhooks/events-dashboard): Horizon is 30 days. PayPal does not say whether a retry has
// a new time, so a time may be as old as Horizon and five minutes: within that time the record
// shows that a repeated event is a duplicate. It may be five minutes in the future. Bodies have up
// to 1 MiB here; PayPal documents no limit.
//
// When a certificate cannot be fetched, the delivery is refused with 401, and PayPal retries. No
// webhook id, and a webhook id that is empty or has a `|`, are an [*dedup.InputError].
func PayPal(cfg PayPalConfig) (Provider, error) {
	setting := secretSetting{field: "webhook.PayPalConfig.WebhookIDs", noun: "id",
		right: "the webhook ID that PayPal shows for the endpoint"}
	n := len(cfg.WebhookIDs)
	if n == 0 {
		return Provider{}, setting.none()
	}
	for i, id := range cfg.WebhookIDs {
		switch {
		case id == "":
			return Provider{}, setting.empty(i, n)
		case strings.Contains(id, "|"):
			return Provider{}, setting.malformed(i, n, "has the separator |")
		}
	}
	p := &payPal{ids: slices.Clone(cfg.WebhookIDs), certs: newPayPalCerts(cfg),
		guard: replayGuard{keep: payPalHorizon + 2*tolerance}}
	return Provider{Name: "paypal", Horizon: payPalHorizon, BodyLimit: defaultBodyLimit,
		Precheck: p.precheck, Verify: p.verify}, nil
}

type payPal struct {
	ids   []string
	certs *payPalCerts
	guard replayGuard
}

// payPalSaid has what the headers of a message say.
type payPalSaid struct {
	id, timestamp, certURL string
	sent                   time.Time
	signature              []byte
}

func (p *payPal) precheck(h http.Header, now time.Time) error {
	_, err := p.said(h, now)
	return err
}

func (p *payPal) said(h http.Header, now time.Time) (s payPalSaid, err error) {
	var ok [5]bool
	var algorithm, signature string
	s.id, ok[0] = line(h, "Paypal-Transmission-Id")
	s.timestamp, ok[1] = line(h, "Paypal-Transmission-Time")
	s.certURL, ok[2] = line(h, "Paypal-Cert-Url")
	algorithm, ok[3] = line(h, "Paypal-Auth-Algo")
	signature, ok[4] = line(h, "Paypal-Transmission-Sig")
	if slices.Contains(ok[:], false) || algorithm != "SHA256withRSA" ||
		strings.Contains(s.id, "|") || !payPalCertURL(s.certURL) {
		return s, ErrSignature
	}
	s.signature, err = strictBase64.DecodeString(signature)
	if err != nil || len(s.signature) < minRSASignature {
		return s, ErrSignature
	}
	if s.sent, err = time.Parse(time.RFC3339, s.timestamp); err != nil {
		return s, ErrSignature
	}
	return s, recent(s.sent, now, payPalHorizon)
}

func (p *payPal) verify(m *Message) (Identity, error) {
	s, err := p.said(m.Header, m.Now)
	if err != nil {
		return Identity{}, err
	}
	cert, err := p.certs.get(s.certURL, m.Now)
	if err != nil {
		return Identity{}, err
	}
	crc := strconv.FormatUint(uint64(crc32.ChecksumIEEE(m.Body)), 10)
	if !slices.ContainsFunc(p.ids, func(webhook string) bool {
		sum := sha256.Sum256([]byte(s.id + "|" + s.timestamp + "|" + webhook + "|" + crc))
		return signedBy(cert, sum, s.signature)
	}) {
		return Identity{}, ErrSignature
	}
	body, err := members(m.Body, "id", "event_type")
	if err != nil {
		return Identity{}, err
	}
	id := text(body["id"])
	if id == "" {
		return Identity{}, bad("body", "has no id that can be read")
	}
	if !p.guard.bind(s.id, id, m.Now) {
		return Identity{}, ErrSignature
	}
	return Identity{ID: id, Type: text(body["event_type"]), Signed: true, Sent: s.sent}, nil
}
