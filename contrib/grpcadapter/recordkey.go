package grpcadapter

import (
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/keyname"
)

// RecordKey names a call with a key as the interceptor does, so that you can find its record: with
// [RecordKey.ID] in a [dedup.Store], and with Key and [RecordKey.Scope] through a Deduper or a
// sqladapter.Ledger.
type RecordKey struct {
	// Name is Config.Name. Default "".
	Name string
	// Principal is what the [Scope] returns; empty for [Unscoped].
	Principal string
	// FullMethod is "/package.Service/Method".
	FullMethod string
	// Key is the value of [KeyMetadata].
	Key string
}

// Scope returns the scope of the key: a digest, so that nothing of the principal is in clear.
func (k RecordKey) Scope() string {
	return keyname.ScopeGRPC(k.Name, k.Principal, k.FullMethod)
}

// ID returns the ID of the record in namespace, which is that of the Runner. A namespace or a Key
// that no record can have is an [*dedup.InputError].
func (k RecordKey) ID(namespace string) (driver.ID, error) {
	return driver.NewID(namespace, k.Scope(), k.Key)
}

// name is the ID of the call's record, for logs and answers.
func (c *call) name() keyname.Name { return keyname.Of(c.i.run, c.scope, c.key) }

// label is stored in clear if the Deduper has Labels.
func (c *call) label() string { return keyname.Label(c.method, c.key) }

// warn logs what an operator may have to look into, with the ID of the record.
func (c *call) warn(what string, args ...any) {
	c.i.cfg.Logger.Warn("grpcadapter: "+what,
		append([]any{"method", c.method, c.name().Attr()}, args...)...)
}
