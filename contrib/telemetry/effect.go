package telemetry

import (
	"context"
	"time"
)

// CountEffect counts an effect as onceward.dedup.beyond_window when its message was written longer
// ago than Config.Window. If the message had an effect before, the record of that one may have been
// forgotten, and nothing else tells this effect from a first one. Call it where an effect is on
// record, with the time that the message itself has. In kafkaadapter.Observer.Recorded that is
// Message.Timestamp, and in queue.Observer.Recorded the time that the broker gives the message. In
// a webhook's handler it is Delivery.Sent. A zero time counts as unknown. Every time does where
// Config.Window is 0. The clocks of two machines may differ by seconds; windows last for hours.
func (m *Metrics) CountEffect(written time.Time) {
	if m.window > 0 && !written.IsZero() && time.Since(written) > m.window {
		m.dedup.beyond.Add(context.Background(), 1, m.dedup.named...)
	}
}
