package webhook

import (
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/encrypted"
	"github.com/onceward/onceward/internal/keyname"
)

// RecordKey names a delivery as the [Receiver] does, so that you can find its record: with
// [RecordKey.ID] in a [dedup.Store], and with [RecordKey.Key] and [RecordKey.Scope] through a
// Deduper or a sqladapter.Ledger.
type RecordKey struct {
	// Provider is Provider.Name, such as "stripe" or "github"; Endpoint is Config.Endpoint.
	Provider, Endpoint string
	// EventID is the provider's id of the event, if its signature covers the id. If it does not, as
	// with GitHub, EventID is empty, or with Config.Relabelled the unsigned id.
	EventID string
	// Body and EventType are set for a delivery whose id is not signed. Body nil: the id is signed.
	Body      []byte
	EventType string
}

// Scope returns the scope of the key: a digest.
func (k RecordKey) Scope() string {
	mode := "id"
	if k.Body != nil {
		mode = "body"
	}
	return encrypted.ScopeOf("webhook", "1", mode, k.Provider, k.Endpoint)
}

// Key returns the key within the scope: the signed id, or a digest of what is signed, and of the
// type.
func (k RecordKey) Key() string {
	switch {
	case k.Body == nil:
		return k.EventID
	case k.EventID != "":
		return digest([]byte(k.EventType), k.Body, []byte(k.EventID))
	}
	return digest([]byte(k.EventType), k.Body)
}

// ID returns the ID of the record in namespace, which is that of the Runner. A namespace or a Key
// that no record can have is an [*dedup.InputError].
func (k RecordKey) ID(namespace string) (driver.ID, error) {
	return driver.NewID(namespace, k.Scope(), k.Key())
}

// record returns what the delivery is recorded under.
func (c *call) record() RecordKey {
	k := RecordKey{Provider: c.rc.provider.Name, Endpoint: c.rc.cfg.Endpoint}
	if c.id.Signed {
		k.EventID = c.id.ID
		return k
	}
	if k.Body = c.body; k.Body == nil {
		k.Body = []byte{}
	}
	k.EventType = c.id.Type
	if c.rc.cfg.Relabelled {
		k.EventID = c.id.ID
	}
	return k
}

// name is the ID of the delivery's record, for logs and answers.
func (c *call) name() keyname.Name {
	k := c.record()
	return keyname.Of(c.rc.run, k.Scope(), k.Key())
}

// label is stored in clear if the Deduper has Labels.
func (c *call) label() string {
	return keyname.Label(c.rc.provider.Name+" "+c.rc.cfg.Endpoint, c.id.ID)
}
