// Package keyspec finds the record of a key from what people know of it: the request, the webhook
// or the call. The command and the console use it. Requests, webhooks and calls have a scope that
// is a digest, so their key alone finds nothing.
package keyspec

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/httpadapter/webhook"
	"github.com/onceward/onceward/internal/keyname"
)

// Spec is what somebody has said of a key. Fields of at most one kind are set.
type Spec struct {
	Namespace, Key string
	// Scope is the scope itself.
	Scope string
	// Method, URL or Route, Principal and Name describe a request: see httpadapter.RecordKey. The
	// default Route is that of URL.
	Method, URL, Route, Principal, Name string
	// GRPC is the full method of a call, with Principal and Name.
	GRPC string
	// Tool is the name of an MCP tool, with Principal and Name.
	Tool string
	// Provider and Endpoint describe a webhook. Body and EventType describe one whose id is not
	// signed.
	Provider, Endpoint, EventType string
	Body                          []byte
}

// Error names the field, in lower case, that is wrong.
type Error struct{ Field, Reason string }

// Error names the field and what is wrong with it.
func (e *Error) Error() string { return e.Field + " " + e.Reason }

func fault(field, format string, args ...any) error {
	return &Error{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Scoped reports whether any field but namespace and key is set.
func (s *Spec) Scoped() bool {
	return s.Scope != "" || s.Provider != "" || s.Endpoint != "" || s.EventType != "" ||
		s.Body != nil || s.GRPC != "" || s.Tool != "" || s.http()
}

// http reports whether a field is set that only a request has.
func (s *Spec) http() bool {
	return s.Method != "" || s.URL != "" || s.Route != "" ||
		(s.GRPC == "" && s.Tool == "" && (s.Principal != "" || s.Name != ""))
}

// Resolve fills in Scope, and Key of a webhook whose id is not signed, and returns the ID. Errors
// are of the type *Error.
func (s *Spec) Resolve() (driver.ID, error) {
	if err := s.scope(); err != nil {
		return driver.ID{}, err
	}
	id, err := driver.NewID(s.Namespace, s.Scope, s.Key)
	if input, ok := err.(*dedup.InputError); ok { //nolint:errorlint // NewID wraps nothing
		return id, fault(input.Field, "%s", input.Reason)
	}
	return id, err
}

func (s *Spec) scope() error {
	ofWebhook := s.Provider != "" || s.Endpoint != "" || s.EventType != "" || s.Body != nil
	kinds := 0
	for _, set := range []bool{s.Scope != "", s.http(), s.GRPC != "", s.Tool != "", ofWebhook} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return fault("scope",
			"is of one kind alone: of a request, a gRPC call, a tool call, a webhook, or given itself")
	case ofWebhook:
		return s.webhook()
	case s.GRPC != "":
		if !strings.HasPrefix(s.GRPC, "/") {
			return fault("grpc", "is %q; a full method is /package.Service/Method", s.GRPC)
		}
		s.Scope = keyname.ScopeGRPC(s.Name, s.Principal, s.GRPC)
	case s.Tool != "":
		s.Scope = keyname.ScopeMCP(s.Name, s.Principal, s.Tool)
	case s.http():
		return s.request()
	}
	return nil
}

func (s *Spec) webhook() error {
	switch {
	case s.Provider == "":
		return fault("webhook", "is missing: the name of the provider, such as stripe")
	case s.Endpoint == "":
		return fault("endpoint", "is missing: the Endpoint of the receiver's Config")
	case s.EventType != "" && s.Body == nil:
		return fault("event-type", "goes with the body of a webhook whose id is not signed")
	}
	k := webhook.RecordKey{Provider: s.Provider, Endpoint: s.Endpoint, EventID: s.Key, Body: s.Body,
		EventType: s.EventType}
	s.Scope, s.Key = k.Scope(), k.Key()
	return nil
}

func (s *Spec) request() error {
	route := s.Route
	switch {
	case s.Method == "":
		return fault("method", "is missing: the method of the request, such as POST")
	case (s.URL == "") == (s.Route == ""):
		return fault("url", "or route is missing, or both are there: the URL of the request, or what Config.Route returns for it")
	case s.URL != "":
		u, err := url.Parse(s.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fault("url", "is not of the form https://host/path")
		}
		// Without TLS, as behind a proxy: the default ports of both schemes are removed.
		route = httpadapter.DefaultRoute(&http.Request{Host: u.Host, URL: u})
	}
	s.Scope = httpadapter.RecordKey{Name: s.Name, Principal: s.Principal,
		Method: strings.ToUpper(s.Method), Route: route}.Scope()
	return nil
}
