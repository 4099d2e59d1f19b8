package telemetry

import (
	"context"
	"time"
)

// CountEffect counts an effect as onceward.dedup.beyond_window if its message was written longer
// ago than Config.Window. If the message had an effect before, its record may be forgotten by now,
// and then nothing else shows that this effect is the second one. Call CountEffect when an effect
// is on record, with the time of the message itself. In kafkaadapter.Observer.Recorded that is
// Message.Timestamp, and in queue.Observer.Recorded the time that the broker gives the message. In
// a webhook's handler it is Delivery.Sent. A zero time is not counted. With a Config.Window of 0 no
// effect is counted. The clocks of two machines may differ by seconds; windows last for hours.
func (m *Metrics) CountEffect(written time.Time) {
	if m.window > 0 && !written.IsZero() && time.Since(written) > m.window {
		m.dedup.beyond.Add(context.Background(), 1, m.dedup.named...)
	}
}
