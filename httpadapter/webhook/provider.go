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
	// Name is for logs and for the handler. It is part of every key: if you change it, events that
	// were done run again. Required.
	Name string
	// Horizon is how long after the first attempt the same event may be sent again, by the
	// provider or by hand. [New] refuses a shorter window. Required.
	Horizon time.Duration
	// BodyLimit bounds a body, in bytes. A body is in memory before it is verified:
	// [Config].MaxUnverified bounds all such bodies together, and http.Server.ReadTimeout bounds
	// how long they are there. Default 1 MiB.
	BodyLimit int
	// Precheck returns an error if the headers alone show that a message cannot be believed: the
	// signature is missing or malformed, or the time is too far from now. It is called before the
	// body is read, so that nobody can fill memory without a signature. Its errors are answered
	// like those of Verify. If it returns nil, Verify is still called. It must not change the
	// headers, and may be called concurrently. Default nil: every body is read. The presets and
	// [HMAC] have one, except [Adyen] and [Mailgun], whose signature is in the body.
	Precheck func(h http.Header, now time.Time) error
	// Verify returns the identity of a message, or why it cannot be believed: an
	// [*dedup.InputError] is answered with 400, any other error with 401. It must not keep or
	// change the message, and may be called concurrently. Required.
	Verify func(*Message) (Identity, error)
}

// Message is a webhook as it came in, to be verified.
type Message struct {
	Header http.Header
	Body   []byte
	// Query is the query of the request's URL as it arrived, without the question mark.
	Query string
	// Now is the time that timestamps are compared with.
	Now time.Time
}

// Identity is what a verified message is.
type Identity struct {
	// ID is the same each time the provider sends the event.
	ID string
	// Type of the event; "" if the provider does not say.
	Type string
	// Signed says that the signature covers ID. If it does not, the key is made of the body.
	Signed bool
	// Sent is the signed time of this attempt; zero where there is none.
	Sent time.Time

	notice    bool   // Slack's: no event, and the handler is not called
	challenge []byte // Slack's: no event, and this is the answer
}

// check refuses an identity that could be confused with another.
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
	// checked here, so that an InputError of the Runner is never the sender's fault
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
	// Header of the request. Only what the provider documents as signed is signed.
	Header http.Header
	// Body as it was sent, byte for byte. Adyen, Mailgun and PayPal do not sign all of it.
	Body []byte
	// Sent is the signed time of this attempt; zero where there is none.
	Sent time.Time
}

// Reasons why a message is not believed.
var (
	// ErrSignature: no signature of the message was made with one of the secrets.
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

// errNoMatch is ErrSignature for a signature that is well formed.
var errNoMatch = fmt.Errorf("%w: no secret matches it; is the secret another endpoint's, or was the "+
	"body changed on its way?", ErrSignature)

// noHeader is ErrSignature for a message whose headers have no signature that can be read.
func noHeader(name string) error {
	return fmt.Errorf("%w: the header %s is missing, twice there, or malformed", ErrSignature, name)
}

func bad(field, format string, args ...any) error {
	return &dedup.InputError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// line returns the value of a header that occurs exactly once: of two values, sender and receiver
// might read different ones.
func line(h http.Header, name string) (string, bool) {
	name = http.CanonicalHeaderKey(name)
	var values []string
	for key, list := range h { // net/http has only canonical names, other servers may not
		if http.CanonicalHeaderKey(key) == name {
			values = append(values, list...)
		}
	}
	if len(values) != 1 || values[0] == "" {
		return "", false
	}
	return values[0], true
}

// maxDigits is enough for Unix seconds in the next 30,000 years.
const maxDigits = 12

// fresh parses a timestamp in Unix seconds and checks that it is at most d before or after now.
// Times in the future are bounded, too: a sender's clock that is ahead must not make a message
// replayable for longer.
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
