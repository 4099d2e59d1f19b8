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
	Origin driver.Origin
	// Label is kept in clear next to the digest when Config.Labels is set: at most
	// 64 bytes of printable UTF-8. Never put personal data in it.
	Label string
	// Fingerprint of the payload; a zero fingerprint is never compared.
	Fingerprint driver.Fingerprint
	// Window shortens Config.Window for this key, such as to a day for one topic where another
	// needs a month. At least Config.LeaseTTL. The attempt that ends the key decides. A store with
	// one window for all keys, such as redisadapter's layout Compact, refuses it. Zero:
	// Config.Window.
	Window time.Duration
	// LikelyDuplicate says that the message was probably processed before, such as a redelivery. A
	// claim then costs less for a key that is done, and more for others. The answer is the same.
	LikelyDuplicate bool
	// TakeOverOlderGeneration also asks for a key in flight whose consumer has lost the partition:
	// the claim has the same Origin.Source and Partition, and an older Generation above zero.
	// Source must name the consumer group and the topic. The older owner learns of it with its next
	// renewal, so both effects can happen, unless effect and record are one transaction. A claim
	// after [MarkIrreversible] is never taken over, and neither is a claim that the same batch has
	// won.
	TakeOverOlderGeneration bool
	// OnlyNew asks only for a key without an attempt: never claimed, forgotten, or given back as
	// unused by all who had it (Completion.NotAttempted). Any other key that could be claimed is
	// left as it is and not counted: the claim is [InFlight] with a Record.Remaining of zero or
	// less, at once and also in Observe mode. Use it to claim ahead, so that waiting messages use
	// up no attempts, and ask again without it when their turn has come. Resolve is not called.
	OnlyNew bool
	// NoResult says that the key never has a result, whoever handles it, so that a store may record
	// its success by a cheaper command. A result that is given anyway is not kept ([ErrNoResult]).
	// While the store remembers an attempt with NoResult, it does not keep the result of a later
	// attempt without it either. [Do] with struct{} and Config.SeenOnly set NoResult.
	NoResult bool
}

// Option changes the [Request] of a single call. Any field can be set by a func literal, such as
// func(r *dedup.Request) { r.Label = "order 7" }.
type Option func(*Request)

// WithScope sets Request.Scope.
func WithScope(scope string) Option { return func(r *Request) { r.Scope = scope } }

// WithWindow sets Request.Window.
func WithWindow(window time.Duration) Option { return func(r *Request) { r.Window = window } }

// WithFingerprint sets Request.Fingerprint to [driver.FingerprintOf] payload.
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
