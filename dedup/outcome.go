package dedup

// Outcome is what a claim attempt found.
//
// Only [Duplicate], and [Acquired] once Complete or Fail has returned nil, may be
// acknowledged to whoever delivered the message: the key is done, with its effect or
// with a failure that no retry can fix. Everything else means that neither is known. For an
// error, [CanAck] says the same.
type Outcome uint8

const (
	// Unknown means that this call could not learn the state of the key: the store
	// was unreachable, answered too late, or holds a value this version cannot
	// read. Never acknowledge on it; ask again. It is the zero value on purpose.
	Unknown Outcome = iota
	// Acquired means that the caller now holds the claim and must run the effect.
	// Finding one's own token, after a lost reply, is Acquired too.
	Acquired
	// Duplicate means that the key is done: it succeeded, or it failed for good.
	Duplicate
	// InFlight means that another owner holds the claim under a live lease.
	InFlight
	// Mismatch means that the key is bound to another payload fingerprint.
	Mismatch
	// Uncertain means that an earlier owner died after it had declared that the
	// irreversible part might have begun; somebody has to find out.
	Uncertain
)

// String returns the lower-case name used in logs and metrics.
func (o Outcome) String() string {
	switch o {
	case Acquired:
		return "acquired"
	case Duplicate:
		return "duplicate"
	case InFlight:
		return "in_flight"
	case Mismatch:
		return "mismatch"
	case Uncertain:
		return "uncertain"
	default:
		return "unknown"
	}
}
