package httpadapter

import (
	"errors"
	"net/http"
)

// Scope returns the principal of a request: the account to which its key belongs, as the
// authentication has found it. Requests of two principals with the same key are two requests. An
// empty principal is answered with 401, an error with 503, both before the body is read. The
// principal must not come from what a client can choose freely.
type Scope func(r *http.Request) (principal string, err error)

var errUnscoped = errors.New("httpadapter: unscoped")

// Unscoped is the [Scope] of a service that has one client, or whose keys are secret and cannot be
// guessed: everybody who sends the same key, method and route gets the same answer. A Scope may
// call Unscoped and return its results, but only for such routes.
func Unscoped(*http.Request) (string, error) { return "", errUnscoped }

// scope is the scope of a key, as [RecordKey] has it.
func (m *Middleware) scope(principal, method, route string) string {
	return RecordKey{Name: m.cfg.Name, Principal: principal, Method: method, Route: route}.Scope()
}
