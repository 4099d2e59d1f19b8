package dedup

import (
	"time"

	"github.com/onceward/onceward/dedup/driver"
)

// Result is what [DoResult] returns.
type Result[T any] struct {
	Value   T              // Value of this call's fn, or the stored one of a Duplicate.
	Outcome driver.Outcome // Outcome of the claim; Acquired means that this call ran fn.
	Attempt int            // Attempt that ran the effect, from 1.
	Record  Record         // Record that was found, for anything but Acquired.
	Cause   driver.Cause   // Cause of a Duplicate, InFlight or Mismatch.
}

// causeOf explains the duplicate that arrived from o and found rec. Another source is
// reported first, because the effect may be missing. An age beyond lateAfter comes next,
// whatever the position: it is the warning that the window is too short.
func causeOf(outcome driver.Outcome, o *driver.Origin, rec *Record,
	lateAfter time.Duration) driver.Cause {
	switch {
	case outcome == Mismatch:
		return driver.KeyReuse
	case outcome != Duplicate && outcome != InFlight:
		return ""
	case o.Digest() != 0 && rec.Origin.Digest() != 0 && o.Digest() != rec.Origin.Digest():
		return driver.OtherSource
	case rec.Age > lateAfter:
		return driver.Late
	case samePosition(o, &rec.Origin) && o.Generation != rec.Origin.Generation:
		return driver.RebalanceReplay
	case samePosition(o, &rec.Origin):
		return driver.BrokerRedelivery
	default:
		return driver.ProducerRetry
	}
}
