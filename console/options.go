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
	// Store is looked into. Use the one of the Dedupers, or another one over the same records. Keys
	// are listed if it is a [Lister], too, as those of redisadapter and sqladapter are.
	Store dedup.Store
	// Name says on each page what this is the console of, at most 64 bytes. Default DefaultName.
	Name string
	// Namespace is what the form for a search begins with. Default: empty, to be typed in.
	Namespace string
	// Window is what the form begins with that records an uncertain key as done: for how long that
	// is remembered. Default 0: to be typed in.
	Window time.Duration
	// Hold is how long the fence of a forgotten key is left behind; see dedup.Config.Hold. Default
	// DefaultHold.
	Hold time.Duration

	// ShowResult makes the text that is shown of a result, or of the error that a failure has
	// stored. The text is escaped, and cut at 4 KiB. It must not keep or change result. Default
	// nil: the length alone.
	ShowResult func(id driver.ID, result []byte) string
	// ShowError makes the text that is shown of an error of the store. Default nil: the error's
	// own.
	ShowError func(error) string

	// AllowChanges lets people resolve uncertain keys and forget keys. Default false: read only.
	AllowChanges bool
	// Authorize is asked before a change is offered and again before it is made, and says who makes
	// it, for the log. Its error is logged, and answered with 403 without its text. Default nil:
	// whoever gets here may, and the log says who = "".
	Authorize func(*http.Request) (who string, err error)
	// Secret signs the tokens of forms, at least 16 bytes. Where several processes serve one
	// console behind a balancer they need the same. Default nil: random, of this Console.
	Secret []byte
	// SecureCookie marks the session's cookie Secure even where a request came without TLS, because
	// a proxy has ended it. Default false: only where it came with TLS.
	SecureCookie bool

	// Timeout bounds what one page asks of the store. A list looks for keys for a second, or half
	// of Timeout if that is less, and continues when it is asked to. Default DefaultTimeout.
	Timeout time.Duration
	// ListLimit is how many rows a list has, at most 1000; a part of a list that is looked for in
	// Redis may have some more. Default DefaultListLimit.
	ListLimit int
	// Logger is told every change, and every one that was refused. Default slog.Default().
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

// absent reports whether there is no store, not even behind an interface.
func absent(s dedup.Store) bool {
	if s == nil {
		return true
	}
	v := reflect.ValueOf(s)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
