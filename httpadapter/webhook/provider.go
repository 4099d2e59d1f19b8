package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// Provider is the sender of the webhooks of an endpoint.
type Provider struct {
	// Name is for logs and for the handler, and part of every key: under another name, what
	// was done runs again. Required.
	Name string
	// Horizon is how long after the first attempt the same event may be sent again, by the
	// provider or by hand. [New] refuses a shorter window. Required.
	Horizon time.Duration
	// BodyLimit bounds a body, in bytes. It is in memory before it is verified:
	// [Config].MaxUnverified bounds all of them together, and http.Server.ReadTimeout says for
	// how long. Default 1 MiB.
	BodyLimit int
	// Precheck says from the headers alone why a message cannot be believed: a signature that is
	// missing or has not its form, a time that is too far from now. It is called before the body
	// is read, so that whoever has no signature cannot fill memory; its errors are answered as
	// those of Verify, which is still called. It must not change the headers, and is called by
	// many goroutines at a time. Default nil: every body is read. The presets and [HMAC] have
	// one, except [Adyen] and [Mailgun], whose signature is in the body.
	Precheck func(h http.Header, now time.Time) error
	// Verify says what a message is, or why it is not to be believed: an
	// [*dedup.InputError] is answered with 400, any other error with 401. It must not keep
	// or change the message, and is called by many goroutines at a time. Required.
	Verify func(*Message) (Identity, error)
}

// Message is a webhook as it came in, to be verified.
type Message struct {
	Header http.Header
	Body   []byte
	// Query is the query of the request's URL as it came, without the question mark.
	Query string
	// Now is the time that timestamps are compared with.
	Now time.Time
}

// Identity is what a verified message is.
type Identity struct {
	// ID is the same each time the provider sends the event.
	ID string
	// Type of the event; "" where the provider does not say.
	Type string
	// Signed says that the signature covers ID. Where it does not, the key is made of the
	// body.
	Signed bool
	// Sent is the signed time of this attempt; zero where there is none.
	Sent time.Time

	notice    bool   // Slack's: no event, and nothing to be told
	challenge []byte // Slack's: no event, and this is the answer
}

// check reports what nobody could tell from others.
func (i *Identity) check() error {
	if i.ID == "" {
		return bad("id", "is empty")
	}
	if !readable(i.ID) || !readable(i.Type) {
		return bad("id", "or type has U+FFFD, or bytes that are not UTF-8")
	}
	if !i.Signed {
		return nil // the key is a digest
	}
	// checked here, so that a refusal by the Runner is never the sender's fault
	_, err := driver.NewID("webhook", "", i.ID)
	return err
}

// Delivery is a verified webhook that is not done yet. Each run of a handler gets its own.
type Delivery struct {
	// Provider and Endpoint are those of the [Receiver].
	Provider, Endpoint string
	// ID and Type of the event; see [Identity]. Anybody who has captured a body can forge
	// unsigned ones.
	ID, Type string
	// Header of the request. Nothing of it is signed but what the provider says.
	Header http.Header
	// Body as it was sent, byte for byte. Adyen, Mailgun and PayPal do not sign all of it.
	Body []byte
	// Sent is the signed time of this attempt; zero where there is none.
	Sent time.Time
}

// Why a message is not believed.
var (
	// ErrSignature: no signature of the message is by one of the secrets.
	ErrSignature = errors.New("webhook: no valid signature")
	// ErrStale: the signed time is too long ago, or in the future.
	ErrStale = errors.New("webhook: the signed time is too far from now")
)

const (
	mebibyte         = 1 << 20
	defaultBodyLimit = mebibyte
	gitHubBodyLimit  = 25 * mebibyte
	tolerance        = 5 * time.Minute
)

func bad(field, format string, args ...any) error {
	return &dedup.InputError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// line is the value of a header that is there exactly once: of two, sender and receiver
// might each read another one.
func line(h http.Header, name string) (string, bool) {
	name = http.CanonicalHeaderKey(name)
	var values []string
	for key, list := range h { // net/http has canonical names alone, and not every server is that
		if http.CanonicalHeaderKey(key) == name {
			values = append(values, list...)
		}
	}
	if len(values) != 1 || values[0] == "" {
		return "", false
	}
	return values[0], true
}

// maxDigits holds Unix seconds for the next 30,000 years.
const maxDigits = 12

// fresh parses a timestamp in Unix seconds and checks that it is within d of now, in the
// past and in the future: a clock that is ahead must not make a message replayable for
// longer.
func fresh(text string, now time.Time, d time.Duration) (time.Time, error) {
	if len(text) == 0 || len(text) > maxDigits {
		return time.Time{}, ErrSignature
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return time.Time{}, ErrSignature
		}
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, ErrSignature
	}
	sent := time.Unix(seconds, 0)
	if age := now.Sub(sent); age > d || age < -d {
		return time.Time{}, ErrStale
	}
	return sent, nil
}
