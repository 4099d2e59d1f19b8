// Package batchsplit finds out which message made the broker refuse a batch of records.
package batchsplit

import (
	"context"

	"github.com/onceward/onceward/outbox"
)

type orderKey struct{ topic, key string }

// Resend sends again the messages whose result is suspect, one by one and in their order. A broker
// refuses a batch as a whole, such as one with a record that is too large, and does not say which
// record is the reason. If a message is refused even alone, Resend marks its error by
// outbox.Reject.
//
// It does not send a message again if an earlier one of its orderKey has failed, because the
// message would overtake it. It also does not if a later one of its orderKey is acknowledged: that
// one has overtaken the message, and the relay must know of it. When ctx ends the other results
// stay as they are.
func Resend(ctx context.Context, messages []outbox.Message, results []error,
	suspect func(error) bool, send func(i int) error) {
	acknowledged := map[orderKey]int{} // the last one
	for i, err := range results {
		if err == nil {
			acknowledged[orderKeyOf(&messages[i])] = i
		}
	}
	failed := map[orderKey]bool{}
	for i, err := range results {
		if err == nil {
			continue
		}
		l := orderKeyOf(&messages[i])
		last, some := acknowledged[l]
		bound := l.key != "" && (failed[l] || some && last > i)
		if suspect(err) && ctx.Err() == nil && !bound {
			if results[i] = send(i); results[i] == nil {
				continue
			}
			if suspect(results[i]) {
				results[i] = outbox.Reject(results[i])
			}
		}
		failed[l] = true
	}
}

func orderKeyOf(m *outbox.Message) orderKey { return orderKey{m.Topic, string(m.Key)} }
