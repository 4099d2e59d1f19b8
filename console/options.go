package console

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// The defaults of Options.
const (
	DefaultName      = "Onceward"
	DefaultTimeout   = 10 * time.Second
	DefaultListLimit = 100
	DefaultHold      = time.Hour
)

const (
	maxListLimit = 1000
	minSecret    = 16
	maxName      = 64
)

// Options configures a [Console]. Store is required; the rest may be zero.
type Options struct {
	// Store is the store to show: that of the Dedupers, or another one over the same records. The
	// console lists its keys if it is a [Lister], as the stores of redisadapter and sqlstore are.
	Store dedup.Store
	// Name is the name of the service on each page, at most 64 bytes. Default DefaultName.
	Name string
	// Namespace is the initial namespace of the search form. Default: empty, to be typed in.
	Namespace string
	// Window is the initial value in the form that records an uncertain key as done. It is how long
	// the store remembers that. Default 0: to be typed in.
	Window time.Duration
	// Hold is how long the store keeps the fence of a forgotten key; see [dedup.Config].Hold.
	// Default DefaultHold.
	Hold time.Duration

	// ShowResult returns the text that the page shows for a result, or for the error that a failure
	// has stored. The text is escaped, and cut at 4 KiB. It must not keep or change result. Default
	// nil: only the length is shown.
	ShowResult func(id driver.ID, result []byte) string
	// ShowError returns the text that the page shows for an error of the store. Default nil: the
	// error's own text.
	ShowError func(error) string

	// AllowChanges lets people resolve uncertain keys and forget keys. Default false: read only.
	AllowChanges bool
	// Authorize is called before a change is offered and again before it is made. It returns the
	// name of the person for the log. If it returns an error, the console logs that, and answers
	// with 403 without its text. Default nil: everybody who can open the page may make changes, and
	// the log says who = "".
	Authorize func(*http.Request) (who string, err error)
	// Secret signs the tokens of forms, at least 16 bytes. Several processes that serve one console
	// behind a balancer need the same secret. Default nil: a random one for this Console.
	Secret []byte
	// SecureCookie marks the session's cookie Secure even when a request came without TLS. Set it
	// when a proxy in front of the console ends TLS. Default false: only when the request came with
	// TLS.
	SecureCookie bool

	// Timeout bounds the store's time for one page. A list looks for keys for a second, or for half
	// of Timeout if that is less; its next page continues where this one has stopped. Default
	// DefaultTimeout.
	Timeout time.Duration
	// ListLimit is how many rows a list has, at most 1000. A part of a list that the console scans
	// Redis for may have some more. Default DefaultListLimit.
	ListLimit int
	// Logger logs each change, and each change that was refused. Default slog.Default().
	Logger *slog.Logger
}

func bad(field, format string, args ...any) error {
	return &dedup.InputError{Field: "console.Options." + field,
		Reason: fmt.Sprintf(format, args...)}
}

// complete checks the options and fills in the defaults.
func (o *Options) complete() error {
	switch {
	case absent(o.Store):
		return bad("Store", "is nil")
	case len(o.Name) > maxName:
		return bad("Name", "has %d bytes, at most %d are allowed", len(o.Name), maxName)
	case o.Window < 0:
		return bad("Window", "is %v; it must not be negative", o.Window)
	case o.Hold < 0:
		return bad("Hold", "is %v; it must not be negative", o.Hold)
	case o.Timeout < 0:
		return bad("Timeout", "is %v; it must not be negative", o.Timeout)
	case o.ListLimit < 0 || o.ListLimit > maxListLimit:
		return bad("ListLimit", "is %d; 1 to %d are allowed", o.ListLimit, maxListLimit)
	case o.Secret != nil && len(o.Secret) < minSecret:
		return bad("Secret", "has %d bytes, at least %d are needed", len(o.Secret), minSecret)
	case o.Authorize != nil && !o.AllowChanges:
		return bad("Authorize", "is set, and AllowChanges is not: it would never be asked")
	}
	o.defaults()
	return nil
}

func (o *Options) defaults() {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if o.Hold == 0 {
		o.Hold = DefaultHold
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.ListLimit == 0 {
		o.ListLimit = DefaultListLimit
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.ShowError == nil {
		o.ShowError = func(err error) string { return err.Error() }
	}
	o.Secret = append([]byte(nil), o.Secret...)
	if len(o.Secret) == 0 {
		o.Secret = make([]byte, 32)
		_, _ = rand.Read(o.Secret) // never fails
	}
}

// absent reports whether there is no store: nil, or an interface that holds a nil pointer.
func absent(s dedup.Store) bool {
	if s == nil {
		return true
	}
	v := reflect.ValueOf(s)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
