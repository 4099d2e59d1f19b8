// Package batchsplit finds out which message of a refused batch of records is refused for what it
// is.
package batchsplit

import (
	"context"

	"github.com/onceward/onceward/outbox"
)

type orderKey struct{ topic, key string }

// Resend sends again, each by itself and in their order, the messages whose result is suspect. A
// broker refuses a batch of records as a whole, such as one with a record that is too large,
// and says nothing of the single one. A message that is refused alone is marked by outbox.Reject.
//
// Not sent again are messages behind one of their orderKey that has failed, which would overtake
// it, and before one of their orderKey that is acknowledged, which has overtaken them: the relay is
// to know of that. When ctx ends the results stay what they are.
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
