package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// keeps holds the possible values of a route's keep.
var keeps = map[string]func(int) bool{
	"": httpadapter.KeepIETF, "ietf": httpadapter.KeepIETF,
	"stripe-v1": httpadapter.KeepStripeV1, "stripe-v2": httpadapter.KeepStripeV2,
}

// location is a path and what serves it.
type location struct {
	path    string
	handler http.Handler
	only    bool // no other location may serve the path: it is a webhook's
}

// router finds the location of a request. It compares paths as a service might compare them:
// decoded, without dots and doubled slashes. For webhooks it ignores case, a slash at the end and
// the parameters of [withoutParameters]. Otherwise another spelling of a webhook's path would reach
// the service unverified.
type router []location

func (m router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := path.Clean("/" + r.URL.Path)
	bare := withoutParameters(r.URL.Path)
	var best *location
	for i := range m {
		p := &m[i]
		if only := path.Clean(p.path); p.only &&
			(strings.EqualFold(at, only) || strings.EqualFold(bare, only)) {
			best = p
			break
		}
		if !p.only && covers(p.path, at) && (best == nil || len(p.path) > len(best.path)) {
			best = p
		}
	}
	switch {
	case r.Method == http.MethodConnect:
		problem(w, http.StatusMethodNotAllowed, "CONNECT is not served.")
	case best == nil || best.handler == nil:
		problem(w, http.StatusNotFound, "Nothing is served here.")
	default:
		best.handler.ServeHTTP(w, r)
	}
}

// withoutParameters returns a clean path as servlet containers and servers of Windows see it: they
// take ";a=b" off each segment, and take a backslash for a slash.
func withoutParameters(p string) string {
	segments := strings.Split(strings.ReplaceAll(p, `\`, "/"), "/")
	for i, segment := range segments {
		segments[i], _, _ = strings.Cut(segment, ";")
	}
	return path.Clean("/" + strings.Join(segments, "/"))
}

// covers reports whether a path in the settings equals a request's path, or is a prefix of it.
func covers(p, at string) bool {
	return at == p || strings.HasSuffix(p, "/") && (strings.HasPrefix(at, p) || at+"/" == p)
}

// checkPaths finds paths that cannot be told apart, and unknown values of keep.
func (o *Options) checkPaths() error {
	var all []error
	taken := map[string]string{}
	take := func(field, p string) {
		key := strings.ToLower(path.Clean(p))
		switch before, twice := taken[key]; {
		case !strings.HasPrefix(p, "/"), path.Clean(p) != strings.TrimSuffix(p, "/") && p != "/":
			all = append(all, fmt.Errorf(
				"%s: path is %q; it must begin with / and be in its simplest form", field, p))
		case twice:
			all = append(all, fmt.Errorf("%s: path %q is also that of %s", field, p, before))
		default:
			taken[key] = field
		}
	}
	for i, r := range o.Routes {
		field := fmt.Sprintf("routes[%d]", i)
		take(field, r.Path)
		if keeps[r.Keep] == nil {
			all = append(all, fmt.Errorf(
				"%s: keep is %q; ietf, stripe-v1 and stripe-v2 are known", field, r.Keep))
		}
	}
	endpoints := map[string]bool{}
	for i := range o.Webhooks {
		h, field := &o.Webhooks[i], fmt.Sprintf("webhooks[%d]", i)
		take(field, h.Path)
		if h.To != "" && h.To != h.Path {
			take(field+": to", h.To)
		}
		if endpoints[h.Endpoint] {
			all = append(all, fmt.Errorf("%s: endpoint %q is also another's", field, h.Endpoint))
		}
		endpoints[h.Endpoint] = true
	}
	return errors.Join(all...)
}

// locations returns those of the configured routes and of the webhooks. Without routes, all paths
// have keys.
func (o *Options) locations(run httpadapter.Runner, store dedup.Store, s *site) (all []location,
	err error) {
	add := func(field string, i int, path string, h http.Handler, wrong error, only bool) {
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s[%d] %s: %w", field, i, path, wrong))
			return
		}
		all = append(all, location{path, s.count(path, h), only})
	}
	routes := o.Routes
	if len(routes) == 0 {
		routes = []Route{{Path: "/"}}
	}
	for i := range routes {
		h, wrong := o.route(run, s, &routes[i])
		add("routes", i, routes[i].Path, h, wrong, false)
	}
	for i := range o.Webhooks {
		hook := &o.Webhooks[i]
		h, wrong := o.hook(store, s, hook)
		add("webhooks", i, hook.Path, h, wrong, true)
		if hook.To != "" && hook.To != hook.Path {
			all = append(all, location{path: hook.To, only: true}) // only for verified events
		}
	}
	return all, err
}

func (o *Options) route(run httpadapter.Runner, s *site, r *Route) (http.Handler, error) {
	if r.Plain {
		return s.upstream, nil
	}
	cfg := httpadapter.Config{
		Methods: r.Methods, Optional: o.Optional, Keep: keeps[r.Keep],
		Timeout: cmp.Or(r.Timeout, o.Timeout), RequestLimit: r.RequestLimit,
		ResponseLimit: r.ResponseLimit, Headers: r.Headers, MaxInFlight: r.MaxInFlight,
		Logger: s.log,
	}
	if r.Optional != nil {
		cfg.Optional = *r.Optional
	}
	if o.SameHost != "" {
		cfg.SameHost = func(string) string { return o.SameHost }
	}
	m, err := httpadapter.New(run, o.Principal.scope, cfg)
	if err != nil {
		return nil, err
	}
	if r.Irreversible {
		return m.Handler(irreversible(s.upstream, keeps[r.Keep])), nil
	}
	return m.Handler(s.upstream), nil
}

// irreversible records, before the service gets the request, that the service may do what cannot be
// undone. If the service's answer is not stored, the key is then left uncertain, unless the status
// says that nothing began.
func irreversible(next http.Handler, keep func(int) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if _, keyed := dedup.FromContext(ctx); keyed {
			if err := dedup.MarkIrreversible(ctx); err != nil {
				httpadapter.Forgo(ctx)
				problem(w, http.StatusServiceUnavailable, "Nothing was done.")
				return
			}
			w = &refusals{ResponseWriter: w, refused: func(status int) {
				if status >= 400 && status < 500 && !keep(status) && !httpadapter.KeepIETF(status) {
					httpadapter.Forgo(ctx)
				}
			}}
		}
		next.ServeHTTP(w, r)
	})
}

// refusals calls refused with the status of an answer.
type refusals struct {
	http.ResponseWriter
	refused func(status int)
}

func (w *refusals) WriteHeader(status int) {
	w.refused(status)
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *refusals) Unwrap() http.ResponseWriter { return w.ResponseWriter }
