package webhook

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// DefaultWindow is a [dedup.Config].Window that is longer than most providers resend an event.
// [Stripe], [Adyen] and [PayPal] may resend for 30 days, and need a longer one.
const DefaultWindow = 7 * day

const (
	defaultTimeout       = time.Minute
	defaultMaxUnverified = 64 * mebibyte
	defaultRetryAfter    = time.Second
	uncertainRetryAfter  = 30 * time.Second
)

// Handler has the effect of a delivery. It returns nil when the delivery is done. An error for
// which [dedup.IsPermanent] is true says that it can never be done: it is recorded and
// acknowledged. After any other error, and after a panic, the provider sends the event again. The
// context does not end with the client, which may hang up earlier; it ends with Config.Timeout, or
// when the claim is lost. An error returned after that is never permanent.
type Handler = func(ctx context.Context, d *Delivery) error

// Config configures a [Receiver]. Endpoint is required.
type Config struct {
	// Endpoint names what the events are for. Keys are bound to it and to Provider.Name, so that
	// receivers that share a namespace do not answer for each other. If you change it, events that
	// were done run again. Required.
	Endpoint string
	// Handles reports whether events of a type are handled; others are acknowledged without a
	// record. It is not called for an event without a readable type: such an event goes to the
	// handler. Default: all types are handled.
	Handles func(eventType string) bool
	// ShortWindow accepts a Runner whose window is shorter than the provider's Horizon. An event
	// that is sent again after the window runs again. Default false.
	ShortWindow bool
	// Relabelled treats deliveries with equal bodies and different unsigned ids as different
	// events. Otherwise the second one is refused. It is for events like repository_dispatch, whose
	// bodies may honestly be equal. Anybody who has captured a body can then have it run again
	// under any id. It changes nothing if the provider signs the id. Otherwise it changes every
	// key: after you switch it, an event that was done before runs again if it is sent again.
	// Default false.
	Relabelled bool
	// MaxUnverified bounds the memory, in bytes, that bodies take before they are verified, for all
	// requests of this Receiver together. Anybody can send such a body. A delivery beyond it is
	// answered with 503, and the provider sends it again. It must be above Provider.BodyLimit.
	// Default 64 MiB.
	MaxUnverified int
	// Timeout bounds a handler's context. Default 1 min.
	Timeout time.Duration
	// RetryAfter is the Retry-After of 409 and 503, in whole seconds. Default 1 s.
	RetryAfter time.Duration
	// Logger gets the deliveries that are refused, failed for good or could not be recorded. Of a
	// refused delivery, body, id and signature are not logged. Default none.
	Logger *slog.Logger
}

// Receiver receives the webhooks of one endpoint. It is an http.Handler, for POST alone.
type Receiver struct {
	run      httpadapter.Runner
	provider Provider
	handle   Handler
	cfg      Config

	unverified unverified
}

// New returns a Receiver that verifies deliveries with p, and lets run call handle once per event.
// [httpadapter.Claimed] returns such a Runner, also for a Deduper with SeenOnly.
//
// A nil run or handle, a Provider without Name, Verify or Horizon, no Endpoint, and a window
// below the Horizon without ShortWindow are an [*dedup.InputError].
func New(run httpadapter.Runner, p Provider, handle Handler, cfg Config) (*Receiver, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if p.BodyLimit == 0 {
		p.BodyLimit = defaultBodyLimit
	}
	switch {
	case run == nil:
		return nil, bad("Runner", "is nil")
	case handle == nil:
		return nil, bad("Handler", "is nil")
	case run.ResultLimit() != 0 && run.ResultLimit() < len(failedForGood):
		return nil, bad("Runner", "keeps results of %d bytes; at least %d are needed",
			run.ResultLimit(), len(failedForGood))
	case run.Window() != 0 && run.Window() < p.Horizon && !cfg.ShortWindow:
		return nil, bad("Window",
			"of the Runner is %v, and %s may send an event again for %v. Set Window in dedup.Config "+
				"(over SQL in sqladapter.Config) to at least that. With ShortWindow in "+
				"webhook.Config an event that comes after the window runs again",
			run.Window(), p.Name, p.Horizon)
	}
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if cfg.MaxUnverified <= p.BodyLimit {
		return nil, bad("webhook.Config.MaxUnverified",
			"is %d; it must be above the BodyLimit of %s, %d", cfg.MaxUnverified, p.Name,
			p.BodyLimit)
	}
	return &Receiver{run: run, provider: p, handle: handle, cfg: cfg,
		unverified: unverified{limit: int64(cfg.MaxUnverified)}}, nil
}

func (p *Provider) check() error {
	switch {
	case p.Name == "":
		return bad("webhook.Provider.Name", "is empty")
	case p.Verify == nil:
		return bad("webhook.Provider.Verify", "is nil: nobody would be refused")
	case p.Horizon <= 0:
		return bad("webhook.Provider.Horizon", "is %v; it says how long an event may be sent again",
			p.Horizon)
	case p.BodyLimit < 0:
		return bad("webhook.Provider.BodyLimit", "is %d; it must not be negative", p.BodyLimit)
	}
	return nil
}

// complete fills in defaults, or names the first bad field.
func (c *Config) complete() error {
	switch {
	case c.Endpoint == "":
		return bad("webhook.Config.Endpoint", "is empty")
	case c.Timeout < 0:
		return bad("webhook.Config.Timeout", "is %v; it must not be negative", c.Timeout)
	case c.MaxUnverified < 0:
		return bad("webhook.Config.MaxUnverified", "is %d; it must not be negative",
			c.MaxUnverified)
	case c.RetryAfter < 0:
		return bad("webhook.Config.RetryAfter", "is %v; it must not be negative", c.RetryAfter)
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.MaxUnverified == 0 {
		c.MaxUnverified = defaultMaxUnverified
	}
	if c.RetryAfter == 0 {
		c.RetryAfter = defaultRetryAfter
	}
	if c.Handles == nil {
		c.Handles = func(string) bool { return true }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// ServeHTTP implements http.Handler. Nothing is claimed before the message is verified: a forged
// message must neither fill the store nor take the key of an event that is still to come.
func (rc *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		methodNotAllowed.Write(w)
		return
	}
	if rc.provider.Precheck != nil {
		if err := rc.provider.Precheck(r.Header, time.Now()); err != nil {
			rc.refuse(w, err) // its body is not read
			return
		}
	}
	read, p := rc.readBody(w, r)
	if p != nil {
		p.Write(w)
		return
	}
	id, err := rc.verify(r, read)
	switch {
	case err != nil:
		rc.refuse(w, err)
	case id.notice:
		rc.cfg.Logger.Warn("webhook: a notice, and no event", "provider", rc.provider.Name,
			"endpoint", rc.cfg.Endpoint, "type", id.Type)
		w.WriteHeader(http.StatusOK)
	case id.challenge != nil:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(id.challenge) // the client may have gone
	case id.Type != "" && !rc.cfg.Handles(id.Type):
		w.WriteHeader(http.StatusOK)
	default:
		c := &call{rc: rc, r: r, id: id, body: read.bytes}
		c.answer(w, c.run())
	}
}

// verify returns the identity of a message, or why it is refused. From then on its body no longer
// counts toward MaxUnverified.
func (rc *Receiver) verify(r *http.Request, b *body) (Identity, error) {
	defer b.give()
	id, err := rc.provider.Verify(&Message{Header: r.Header, Body: b.bytes, Query: r.URL.RawQuery,
		Now: time.Now()})
	if err == nil && id.challenge == nil && !id.notice {
		err = id.check()
	}
	return id, err
}

// call is one verified message that is being handled.
type call struct {
	rc   *Receiver
	r    *http.Request
	id   Identity
	body []byte

	result   dedup.Result[[]byte]
	left     bool // the client's context
	lastFail error
}
