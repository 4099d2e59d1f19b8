package httpadapter

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/encrypted"
	"github.com/onceward/onceward/internal/quota"
)

// Config configures a [Middleware]. The zero Config works.
type Config struct {
	// Name separates middlewares that share a namespace but must not share keys. Default "".
	Name string
	// Methods are the methods whose requests have keys, in upper case. Requests with other methods
	// pass untouched. Default POST, PATCH.
	Methods []string
	// Optional lets a request without a key pass untouched. Default false: it is answered
	// with 400.
	Optional bool
	// Strict refuses a key without the quotes that the draft asks for. Default false: a bare key is
	// accepted, too, and is the same key as the quoted one.
	Strict bool
	// Route returns what a key is bound to, together with principal and method. If it returns a
	// path with parameters, a key is bound to their values; return the pattern if it should not be.
	// If it leaves out the host, equal requests to two hosts share a key: a service with several
	// hosts must return the host, too, or name Host in FingerprintHeaders. A change of Route
	// changes all keys: retries of earlier requests run again.
	//
	// Default: the host and the path of the request line, each in one spelling. http.StripPrefix
	// does not change them. The host is in lower case, without its scheme's default port (both 80
	// and 443 where r.TLS is nil) and without a dot at its end. In the path, escapes of unreserved
	// characters are decoded, and all other escapes are written in upper case.
	Route func(*http.Request) string
	// SameHost returns one name for all the host names of a service. It gets a host in the spelling
	// of the default Route. A client that sends its request again to a second regional name then
	// gets the answer of the first. It must never return one name for two tenants' hosts: they
	// would share their keys. It also applies to Host in FingerprintHeaders. It cannot be set
	// together with Route. Default: each host is another service.
	SameHost func(host string) string
	// CheckKey refuses a key that does not have the format that the service has published; its
	// error is sent to the client, with 400. Default: 1-255 bytes are a key.
	CheckKey func(key string) error

	// MaxInFlight bounds how many requests with a key one principal may have in flight here at a
	// time, from before the body is read until the answer is there. The next request is answered
	// with 429, and claims nothing. So a principal that sends new keys without end holds at most
	// this many claims, connections and bodies. Each Middleware of each process counts by itself.
	// Replays count, too, and so does a request whose client has gone while its handler still runs.
	// With [Unscoped] it bounds all clients together. Default 0: no bound.
	MaxInFlight int
	// RetryBudget bounds the retries of each principal to a part of its requests: a retry above
	// it is answered with 429, before its body is read, and claims nothing. New requests always
	// continue. With [Unscoped] it bounds all clients together. Default nil: no bound.
	RetryBudget *RetryBudget
	// IsRetry reports whether a request calls itself a retry, by a header of its client or of a
	// proxy such as X-Envoy-Attempt-Count. Such a request counts as a retry even if its key is new
	// to this process, which does not know the keys of the service's other processes. IsRetry is
	// called only with a RetryBudget. Default nil: only the key shows a retry.
	IsRetry func(*http.Request) bool
	// RequestLimit bounds a request's body in bytes. Default 1 MiB.
	RequestLimit int
	// ResponseLimit bounds an answer as it is stored, in bytes. If an answer is larger, the request
	// has had its effect, but is answered with 500, and its retries with 410. At least 256, and at
	// most what the Runner keeps. Default 128 KiB, or what the Runner keeps if that is less.
	ResponseLimit int
	// Headers names response headers that are kept in addition to [DefaultHeaders]. They are
	// replayed while they are in this list. Default none.
	Headers []string

	// FingerprintHeaders names request headers that are part of the fingerprint, as Content-Type
	// and Content-Encoding always are. The name Host stands for the host of the request, in the
	// spelling of the default Route. Default none.
	FingerprintHeaders []string
	// Canonical returns a form of the body that is equal for all bodies that mean the same: a
	// client may write JSON in another order when it tries again. It is used for the fingerprint
	// only. If it returns an error, the body is compared as it is. It may keep and change body,
	// which is a copy. Default: the body is compared as it is.
	//
	// When Canonical is set, or FingerprintHeaders change, requests are not compared with requests
	// from before the change: a request with the key of such an earlier request gets the recorded
	// answer, whatever its content. The middleware does not notice a change of the function itself.
	// Honest retries then get 422 while the deployment rolls, unless FingerprintKey gets another
	// Version.
	Canonical func(contentType string, body []byte) ([]byte, error)
	// FingerprintKey is the secret of the fingerprints. Default nil: they have none.
	FingerprintKey *FingerprintKey

	// Seal encrypts the stored answers; each is bound to the key under which it is stored. Its keys
	// have 32 bytes: the first one encrypts, and all of them decrypt. To change it, add the new key
	// at the end in all processes, then put it first, and drop the old one a window later. It
	// covers only answers: the results of [dedup.Step] and the texts of failures
	// ([dedup.FailedError]) stay in clear. Sealed data is not bound to the Runner's namespace:
	// namespaces that must not read each other's data need different keys. Default: in clear.
	Seal [][]byte
	// AcceptPlain reads records in clear as well, for one window after Seal was set. Default false:
	// with Seal such records are refused.
	AcceptPlain bool

	// Keep reports whether an answer with this status is final: it is stored and replayed. An
	// answer that is not kept is sent, and its key is free for the next attempt. Keep must return
	// true for 2xx. Default [KeepIETF].
	Keep func(status int) bool
	// EmptyAnswer reports whether a handler that returns without WriteHeader, Write or Flush has
	// answered this request with the 200 that net/http then sends. The request is in the state in
	// which the handler has left it: a [http.ServeMux] around or inside of the middleware has set
	// its Pattern. If EmptyAnswer reports false, the middleware does not take silence for a
	// success, because a failed handler looks the same behind an adapter that writes its error too
	// late. The request is then answered with
	// 500. If the Runner is Atomic, the effect is undone; otherwise the key is uncertain. The first
	// silence of a route is logged as an error. A handler whose context has ended is not silent but
	// canceled. EmptyAnswer must be safe for concurrent use. Default nil: for no request.
	EmptyAnswer func(*http.Request) bool
	// BeforeReplay checks again whether the client may see the answer. An error is answered with
	// 403. If it wraps [dedup.ErrUnknown], because that cannot be found out now, the answer is 503.
	// Default: no check besides the Scope.
	BeforeReplay func(*http.Request) error

	// ProblemBody returns the body and the Content-Type of an answer that the middleware gives in
	// its own name, so that this answer looks like the other errors of the API. Status and headers
	// stay as they are. An empty contentType stands for the default. It must be safe for concurrent
	// use. If it panics, the request ends, although its effect may have happened. Default: problem
	// details (RFC 9457).
	ProblemBody func(r *http.Request, p Problem) (contentType string, body []byte)

	// CancelWithClient cancels the handler when its client has gone, or when a deadline passes that
	// code around the middleware has set. The handler's context then has that deadline, too.
	// Default false: the handler continues, and its answer waits for the retry.
	CancelWithClient bool
	// Timeout cancels the handler's context; it never answers for the handler. Default 1 minute.
	Timeout time.Duration
	// RetryAfter is the header Retry-After of an answer that asks for a retry. It is rounded up
	// to whole seconds. Default 1 s.
	RetryAfter time.Duration
	// Logger gets what a client is not told. Default: discarded.
	Logger *slog.Logger
}

const (
	defaultRequestLimit  = 1 << 20
	defaultResponseLimit = 128 << 10
	minResponseLimit     = 256
	defaultTimeout       = time.Minute
	defaultRetryAfter    = time.Second
	uncertainRetryAfter  = 30 * time.Second
)

// Middleware answers requests that carry an Idempotency-Key; see [New]. It is safe for
// concurrent use.
type Middleware struct {
	run                Runner
	principal          Scope
	cfg                Config
	methods            map[string]bool
	headers            map[string]bool
	fingerprintHeaders []string
	digester           *encrypted.Digester
	box                *encrypted.Box
	quota              *quota.Quota
	silences           silences
	refused            sync.Map // of *wrongMount: those that were logged
	atomic             bool     // run undoes the effect when it releases a key
	window             string   // in seconds; "" means forever, or less than one
}

// New returns a Middleware that runs its handlers by run. A retry with the same key gets the
// answer of the first request, from the record. The page docs/reference/http.md says what is
// answered when.
//
// A field that is bad or contradicts another is a [*dedup.InputError]. So are a nil run or scope, a
// run that keeps no results, a header that is never replayed, a Keep that drops 2xx, and
// [KeepStripeV2] with a run that undoes the steps from which a retry would continue.
func New(run Runner, scope Scope, cfg Config) (*Middleware, error) {
	switch {
	case run == nil:
		return nil, &dedup.InputError{Field: "Runner", Reason: "is nil"}
	case scope == nil:
		return nil, &dedup.InputError{Field: "Scope",
			Reason: "is nil; Unscoped says that all clients share their keys"}
	case run.ResultLimit() <= 0:
		return nil, &dedup.InputError{Field: "Runner",
			Reason: "keeps no results (SeenOnly), and answers could not be replayed"}
	}
	cfg.setDefaults(run)
	if err := cfg.check(run); err != nil {
		return nil, err
	}
	if cfg.Route == nil {
		cfg.Route = func(r *http.Request) string { return cfg.sameHost(r) + requestPath(r) }
	}
	m := &Middleware{run: run, principal: scope, cfg: cfg, methods: map[string]bool{},
		quota: quota.New(cfg.MaxInFlight), atomic: isAtomic(run)}
	for _, method := range cfg.Methods {
		m.methods[method] = true
	}
	if window := run.Window(); window >= time.Second {
		m.window = fmt.Sprint(int64(window / time.Second))
	}
	if err := m.build(); err != nil {
		return nil, err
	}
	return m, nil
}

// build makes the parts whose constructors return errors.
func (m *Middleware) build() (err error) {
	if m.headers, err = keptHeaders(m.cfg.Headers); err != nil {
		return err
	}
	more, err := m.fingerprintMore()
	if err != nil {
		return err
	}
	m.fingerprintHeaders = append([]string{"Content-Type", "Content-Encoding"}, more...)
	if m.cfg.Canonical != nil {
		more = append(more, "(canonical)") // no header
	}
	key := FingerprintKey{}
	if m.cfg.FingerprintKey != nil {
		if key = *m.cfg.FingerprintKey; key.Version == 0 {
			return bad("FingerprintKey", "has version 0; it must be 1-127")
		}
	}
	if m.digester, err = encrypted.NewDigester("httpadapter.Config.FingerprintKey", key.Version,
		key.Key, more...); err != nil {
		return err
	}
	m.box, err = encrypted.NewBox("httpadapter.Config.Seal", m.cfg.Seal, m.cfg.AcceptPlain)
	return err
}

func (c *Config) setDefaults(run Runner) {
	if len(c.Methods) == 0 {
		c.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if c.RequestLimit == 0 {
		c.RequestLimit = defaultRequestLimit
	}
	if c.ResponseLimit == 0 {
		c.ResponseLimit = min(defaultResponseLimit, run.ResultLimit())
	}
	if c.Keep == nil {
		c.Keep = KeepIETF
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.RetryAfter == 0 {
		c.RetryAfter = defaultRetryAfter
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func bad(field, format string, args ...any) error {
	return &dedup.InputError{Field: "httpadapter.Config." + field,
		Reason: fmt.Sprintf(format, args...)}
}

// check names the first bad field of a configuration with its defaults.
func (c *Config) check(run Runner) error {
	for _, method := range c.Methods {
		switch {
		case !validName(method):
			return bad("Methods", "has %q, which is not a method", method)
		case method != strings.ToUpper(method):
			return bad("Methods",
				"has %q: a method is in upper case, and no request would have a key", method)
		}
	}
	switch {
	case c.Route != nil && c.SameHost != nil:
		return bad("SameHost",
			"is set together with Route, which alone says what a key is bound to")
	case c.IsRetry != nil && c.RetryBudget == nil:
		return bad("IsRetry", "is set, and there is no RetryBudget that would ask it")
	case c.MaxInFlight < 0:
		return bad("MaxInFlight", "is %d; it must not be negative", c.MaxInFlight)
	case c.RequestLimit < 0:
		return bad("RequestLimit", "is %d; it must not be negative", c.RequestLimit)
	case c.ResponseLimit < minResponseLimit:
		return bad("ResponseLimit", "is %d bytes; at least %d are needed", c.ResponseLimit,
			minResponseLimit)
	case c.ResponseLimit > run.ResultLimit():
		return bad("ResponseLimit", "is %d bytes, more than the Runner keeps (%d)", c.ResponseLimit,
			run.ResultLimit())
	case c.Timeout < 0:
		return bad("Timeout", "is %v; it must not be negative", c.Timeout)
	case c.RetryAfter < 0:
		return bad("RetryAfter", "is %v; it must not be negative", c.RetryAfter)
	case c.AcceptPlain && len(c.Seal) == 0:
		return bad("AcceptPlain", "is set, and there is no Seal")
	}
	for status := 200; status < 300; status++ {
		if !c.Keep(status) {
			return bad("Keep", "is false for %d: a success must be kept, or its retry would have the effect again", status)
		}
	}
	if isAtomic(run) && goesOn(c.Keep) {
		return bad("Keep", "is KeepStripeV2, which continues after the finished steps, and the Runner undoes them")
	}
	return nil
}
