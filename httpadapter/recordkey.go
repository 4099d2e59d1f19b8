package httpadapter

import (
	"net/http"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter/internal/problem"
	"github.com/onceward/onceward/internal/encrypted"
	"github.com/onceward/onceward/internal/keyname"
)

// RecordKey names a request with a key as the [Middleware] does, so that you can find its record:
// with [RecordKey.ID] in a [dedup.Store], and with Key and [RecordKey.Scope] through a Deduper or a
// sqladapter.Ledger.
type RecordKey struct {
	// Name is Config.Name. Default "".
	Name string
	// Principal is what the [Scope] returns; empty for [Unscoped].
	Principal string
	// Method in upper case.
	Method string
	// Route is what Config.Route returns, or [DefaultRoute] if it is nil.
	Route string
	// Key is the Idempotency-Key, without quotes.
	Key string
}

// Scope returns the scope of the key: a digest, so that nothing of the principal is in clear.
func (k RecordKey) Scope() string {
	return encrypted.ScopeOf("http", "1", k.Name, k.Principal, k.Method, k.Route)
}

// ID returns the ID of the record in namespace, which is that of the Runner. A namespace or a Key
// that no record can have is an [*dedup.InputError].
func (k RecordKey) ID(namespace string) (driver.ID, error) {
	return driver.NewID(namespace, k.Scope(), k.Key)
}

// DefaultRoute is used for a Config that has neither a Route nor a SameHost. It returns the host
// and the path of a request in one spelling. It reads Host, TLS, and RequestURI or URL.
func DefaultRoute(r *http.Request) string { return normalHost(r) + requestPath(r) }

// name is the ID of the request's record, for logs and answers.
func (c *call) name() keyname.Name { return keyname.Of(c.m.run, c.scope, c.key) }

// label is stored in clear if the Deduper has Labels.
func (c *call) label() string {
	return keyname.Label(c.r.Method+" "+c.r.URL.Path, c.key)
}

// write answers with p. Its instance names the record, if there can be one.
func (c *call) write(p problem.Problem) {
	if c.scope != "" {
		p.Instance = c.name().URN()
	}
	c.m.writeProblem(c.w, c.r, p)
}

// warn logs what an operator may have to look into, with the ID of the record.
func (c *call) warn(what string, args ...any) {
	c.m.cfg.Logger.Warn("httpadapter: "+what, append([]any{c.name().Attr()}, args...)...)
}
