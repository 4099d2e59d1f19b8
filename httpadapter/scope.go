package httpadapter

import (
	"errors"
	"net/http"
)

// Scope names the principal of a request: the account that its key belongs to, as whoever
// authenticated the request has found out. Two principals with one key are two requests.
// An empty principal is answered with 401, an error with 503, both before the body is read.
// It must not come from what a client can choose freely.
type Scope func(r *http.Request) (principal string, err error)

var errUnscoped = errors.New("httpadapter: unscoped")

// Unscoped is the [Scope] of a service with one client, or whose keys are secret and never
// guessed: everybody who sends the same key, method and route gets the same answer. A Scope
// may return what it returns, for the routes where that is so.
func Unscoped(*http.Request) (string, error) { return "", errUnscoped }

// scope is the scope of a key, as [RecordKey] has it.
func (m *Middleware) scope(principal, method, route string) string {
	return RecordKey{Name: m.cfg.Name, Principal: principal, Method: method, Route: route}.Scope()
}
