package dedup

// Request names one logical operation to claim.
type Request struct {
	// Key names the operation inside namespace and scope: 1-255 bytes of printable
	// UTF-8. It must come from the message, never from the time or a random source.
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
	Fingerprint Fingerprint
	// LikelyDuplicate says that the message has probably been processed before: it was
	// redelivered, say. Asking for such a key is cheaper when it is done, and dearer when
	// it is not. It never changes what is answered.
	LikelyDuplicate bool
	// TakeOverOlderGeneration asks for a key in flight too, when its claim was made for the
	// same Origin.Source and Origin.Partition in an older Origin.Generation, above zero: by
	// a consumer that has lost the partition since. It gets the key at once, as after a
	// release, and not when the lease has lapsed. Name the consumer group as well as the
	// topic in Origin.Source: "same source" must mean the same group and the same topic.
	//
	// The older owner learns of it with its next renewal. It may still be at work until
	// then, and after: its effect and the new one's can both happen. So this adds "a
	// rebalance while a handler still runs" to the ways in which an effect can run twice,
	// unless effect and record are one transaction (the level Atomic). A claim with [Danger]
	// is never taken over, nor one that the same batch has won. Default false.
	TakeOverOlderGeneration bool
	// FirstOnly asks only for a key that has no attempt yet, as far as is remembered. Such a
	// key was never claimed, was forgotten, or was given back as unused by all who had it
	// (Completion.Unused). Any other key that could be claimed (it was released, its lease has
	// lapsed, or its owner is to be taken over) is left as it is and not counted. The claim is
	// then [InFlight], Claim.Attempt is that of the last attempt, and Claim.Record.Remaining is
	// zero or negative, which says "nobody is in the way; ask without FirstOnly when its turn
	// has come". Config.Wait does not apply to that answer, and Observe mode does not run it:
	// nobody would be held back by it. Nor does Config.Resolve: an uncertain key is Uncertain.
	//
	// It is for callers that claim ahead. An attempt is counted when it is claimed. So a
	// message that waits in the same process as one that kills it would use up its attempts
	// without ever having been tried. Default false.
	FirstOnly bool
}

// Option adds to the [Request] of a single call. A field that has no option of its own is set by a
// func literal.
type Option func(*Request)

// WithScope sets Request.Scope.
func WithScope(scope string) Option { return func(r *Request) { r.Scope = scope } }

// WithFingerprint sets Request.Fingerprint to the [FingerprintOf] the payload.
func WithFingerprint(payload []byte) Option {
	return func(r *Request) { r.Fingerprint = FingerprintOf(payload) }
}

// WithLabel sets Request.Label.
func WithLabel(label string) Option { return func(r *Request) { r.Label = label } }

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
