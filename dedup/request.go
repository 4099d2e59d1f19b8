package dedup

import (
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Request names one logical operation to claim.
type Request struct {
	// Key names the operation inside namespace and scope: 1-255 bytes of printable UTF-8. It
	// must come from the message, never from the time or a random source.
	Key string
	// Scope separates tenants, principals or consumer groups: 0-255 bytes of printable
	// UTF-8. The same key in two scopes is two keys.
	Scope string
	// Origin of the message; it explains later duplicates.
	Origin Origin
	// Label is kept in clear next to the digest when Config.Labels is set: at most
	// 64 bytes of printable UTF-8. Never put personal data in it.
	Label string
	// Fingerprint of the payload; zero is compared with nothing.
	Fingerprint driver.Fingerprint
	// Window is a shorter Config.Window for this key, such as a day for one topic where another
	// needs a month. At least Config.LeaseTTL, at most Config.Window. The attempt that ends the key
	// decides. Refused by a store that has one window for all keys: the layout Compact of
	// redisadapter. Default zero: Config.Window.
	Window time.Duration
	// LikelyDuplicate says that the message has probably been processed before: it was
	// redelivered, say. Asking is then cheaper for a key that is done, and dearer for one that
	// is not. It never changes what is answered.
	LikelyDuplicate bool
	// TakeOverOlderGeneration asks for a key in flight too, when its consumer has lost the
	// partition since: its claim has the same Origin.Source and Partition, and an older
	// Generation above zero. Source must name the consumer group as well as the topic. The
	// older owner learns of it with its next renewal, so both effects can happen, unless
	// effect and record are one transaction. A claim after [MarkIrreversible] is never taken
	// over, nor one that the same batch has won.
	TakeOverOlderGeneration bool
	// OnlyNew asks only for a key without an attempt: never claimed, forgotten, or given back
	// as unused by all who had it (Completion.NotAttempted). Any other key that could be
	// claimed is left as it is and not counted: the claim is [InFlight] with a
	// Record.Remaining of zero or less. It is for callers that claim ahead, whose waiting
	// messages must not use up attempts; ask again without it when its turn has come.
	// Config.Wait, Config.Resolve and Observe mode do not apply.
	OnlyNew bool
	// NoResult says that the key never has a result, whoever handles it, so that a store may
	// record its success by a cheaper command. A result that is given anyway is not kept
	// ([ErrNoResult]), nor is one of a later attempt without NoResult while the store
	// remembers an attempt that had it. [Do] with struct{} and Config.SeenOnly set it.
	NoResult bool
}

// Option adds to the [Request] of a single call. A field that has no option of its own is set by a
// func literal.
type Option func(*Request)

// WithScope sets Request.Scope.
func WithScope(scope string) Option { return func(r *Request) { r.Scope = scope } }

// WithWindow sets Request.Window.
func WithWindow(window time.Duration) Option { return func(r *Request) { r.Window = window } }

// WithFingerprint sets Request.Fingerprint to the [driver.FingerprintOf] the payload.
func WithFingerprint(payload []byte) Option {
	return func(r *Request) { r.Fingerprint = driver.FingerprintOf(payload) }
}

func newRequest(key string, opts []Option) Request {
	if len(opts) == 0 {
		return Request{Key: key}
	}
	return withOptions(key, opts)
}

// withOptions costs an allocation: an option may keep what it is given.
func withOptions(key string, opts []Option) Request {
	r := Request{Key: key}
	for _, opt := range opts {
		opt(&r)
	}
	return r
}
