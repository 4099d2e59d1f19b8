package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

//go:embed page
var files embed.FS

var (
	pages = template.Must(template.ParseFS(files, "page/*.html"))
	style = func() []byte {
		b, err := files.ReadFile("page/style.css")
		if err != nil {
			panic(err) // it is embedded
		}
		return b
	}()
	styleVersion = func() string {
		sum := sha256.Sum256(style)
		return hex.EncodeToString(sum[:6])
	}()
)

// Lister is a [dedup.Store] that can list its keys, as the stores of redisadapter and sqlstore
// can.
type Lister interface {
	// Keys calls each for keys that are in one of states, without their results, and returns where
	// the next page begins: the empty string after the last one. cursor is empty for the first
	// page. It does a bounded amount of work, so a page may be empty and not the last. A page may
	// have some more keys than limit; when limit is zero the store chooses it. foreign counts
	// values that it could not read. It returns soon after ctx has ended.
	Keys(ctx context.Context, cursor string, limit int, states []driver.State,
		each func(driver.ID, dedup.Record)) (next string, foreign int, err error)
}

// IrreversibleLister is a Lister that finds the keys past their point of no return
// ([dedup.MarkIrreversible]) without looking at any other key. The store of redisadapter is one.
type IrreversibleLister interface {
	Lister
	// IrreversibleKeys is Keys for those keys alone. The states are StateInProgress,
	// StateUncertain, or both.
	IrreversibleKeys(ctx context.Context, cursor string, limit int, states []driver.State,
		each func(driver.ID, dedup.Record)) (next string, foreign int, err error)
}

// Scanner is a Lister that has to go over all keys of a server, including those of other programs,
// to find its own. The store of redisadapter is one. A page says how far it has looked, and the
// next one continues there.
type Scanner interface {
	Lister
	// ScanKeys is Keys that ends its page soon after budget has passed. It passes the keys that it
	// has found by then to each, and returns next, where the following page continues. looked is
	// about how many keys this page has looked at, and total how many all pages together have to
	// look at; total is zero when it is not known. Each call looks at some keys, however short
	// budget is.
	ScanKeys(ctx context.Context, cursor string, limit int, budget time.Duration,
		states []driver.State, each func(driver.ID, dedup.Record)) (next string, looked,
		total int64,
		foreign int, err error)
}

// Console is an http.Handler. Its pages link to each other by relative names, so it works at / and,
// with http.StripPrefix, below any path that ends with a slash. Make one with [New]. It needs no
// Close.
type Console struct {
	options Options
	start   time.Time
	cross   *http.CrossOriginProtection
	journal journal

	mu      sync.Mutex
	sources []*source // at most maxSources
	others  *source
}

// New returns a Console. It does not call the store. Errors are [*dedup.InputError] and name the
// option.
func New(o Options) (*Console, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	return &Console{options: o, start: time.Now(), cross: http.NewCrossOriginProtection()}, nil
}

// route is a page, with its name below the console's path. All answer GET, and those with a form
// also POST.
type route struct {
	form  bool
	serve func(c *Console, w http.ResponseWriter, r *http.Request) error
}

var routes = map[string]route{
	"": {serve: (*Console).overview},
	"inflight": {serve: func(c *Console, w http.ResponseWriter, r *http.Request) error {
		return c.list(w, r, driver.StateInProgress)
	}},
	"uncertain": {serve: func(c *Console, w http.ResponseWriter, r *http.Request) error {
		return c.list(w, r, driver.StateUncertain)
	}},
	"search":    {form: true, serve: (*Console).search},
	"key":       {serve: (*Console).key},
	"change":    {form: true, serve: (*Console).change},
	"bulk":      {form: true, serve: (*Console).bulk},
	"style.css": {serve: (*Console).style},
}

// ServeHTTP answers with a page. Its calls of the store take at most Options.Timeout together, and
// end when the client has gone. When the store fails, the page has status 502. When the store does
// not answer in time, the page has status 503.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	headers(w.Header())
	defer c.rescue(w, r)
	ctx, cancel := context.WithTimeout(r.Context(), c.options.Timeout)
	defer cancel()
	r = r.WithContext(ctx)
	name, ok := strings.CutPrefix(r.URL.Path, "/")
	if !ok && name == "" {
		c.addSlash(w, r)
		return
	}
	at, ok := routes[name]
	if !ok || strings.Contains(name, "/") {
		c.fail(w, r, &refusal{http.StatusNotFound, "There is no such page",
			"The pages are named above."})
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead &&
		(r.Method != http.MethodPost || !at.form) {
		allow := "GET, HEAD"
		if at.form {
			allow += ", POST"
		}
		w.Header().Set("Allow", allow)
		c.fail(w, r, &refusal{http.StatusMethodNotAllowed, "This page is not asked so",
			"It knows the methods " + allow + "."})
		return
	}
	if err := at.serve(c, w, r); err != nil {
		c.fail(w, r, err)
	}
}

// addSlash redirects a request for the console without the slash at the end of its path to the path
// with it, where relative names work. Only r.RequestURI still has the prefix that was stripped.
func (c *Console) addSlash(w http.ResponseWriter, r *http.Request) {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	w.Header().Set("Location", "./"+path.Base(asked)+"/")
	w.WriteHeader(http.StatusSeeOther)
}

// rescue answers a panic, for example of Options.ShowResult, with a page: nothing has been written
// by then.
func (c *Console) rescue(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint // a value of recover, compared as net/http does
		panic(v)
	}
	c.options.Logger.ErrorContext(r.Context(), "console: panic", "panic", fmt.Sprint(v), "stack",
		string(debug.Stack()))
	c.fail(w, r, &refusal{http.StatusInternalServerError, "The page could not be made",
		"The log of the program says why."})
}

// headers set the headers that keep a page from being cached, framed, or made to run foreign code.
func headers(h http.Header) {
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	// Not no-referrer, which would make the Origin of a form null.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func (c *Console) style(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "private, max-age=86400") // its name has its version
	_, _ = w.Write(style)                                     // the client has gone
	return nil
}

// page holds the fields that every page has.
type page struct {
	Console, Title, Here string
	Version              string
	Changes              bool
	Refresh              int
	// RefreshLink is the address of this page with the refresh turned on, or off.
	RefreshLink string
	At          string
	Body        any
}

// write makes the whole page before it sends any of it.
func (c *Console) write(w http.ResponseWriter, r *http.Request, status int, name, title string,
	body any) error {
	p := page{
		Console: c.options.Name, Title: title, Here: strings.TrimPrefix(r.URL.Path, "/"),
		Version: styleVersion, Changes: c.options.AllowChanges,
		At: time.Now().UTC().Format(instant), Body: body,
	}
	q := r.URL.Query()
	query := url.Values{}
	for _, name := range []string{"text", "older", "sort"} { // those of a filter
		if value := q.Get(name); value != "" {
			query.Set(name, value)
		}
	}
	if q.Get("refresh") == strconv.Itoa(refreshSeconds) && r.Method == http.MethodGet &&
		status < 400 {
		p.Refresh = refreshSeconds
	} else {
		query.Set("refresh", strconv.Itoa(refreshSeconds))
	}
	p.RefreshLink = "?" + query.Encode()
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name+".html", p); err != nil {
		return fmt.Errorf("console: page %s: %w", name, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client has gone
	return nil
}

// refreshSeconds is the time between two refreshes of a page, if the user wants them.
const refreshSeconds = 10

// refusal is an answer that is not a page of data.
type refusal struct {
	status      int
	title, text string
}

func (r *refusal) Error() string { return r.title + ": " + r.text }

// failure holds the fields of the page that shows an error.
type failure struct{ Title, Text, Cause string }

func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := failure{Title: "The store could not answer"}
	status := statusOf(err)
	var no *refusal
	if errors.As(err, &no) {
		status, f.Title, f.Text = no.status, no.title, no.text
	} else {
		f.Text = "Nothing is known of what was asked. The cause:"
		f.Cause = c.options.ShowError(err)
		if status == http.StatusServiceUnavailable {
			f.Text = fmt.Sprintf("It had %v. The cause:", c.options.Timeout)
		}
	}
	if err := c.write(w, r, status, "error", f.Title, f); err != nil {
		http.Error(w, http.StatusText(status), status)
	}
}

// statusOf distinguishes a store that fails from one that is too slow.
func statusOf(err error) int {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}
