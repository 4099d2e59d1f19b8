package kafkafranz

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// The dead-letter topic of one topic is missing, and more letters than may be sent at a time wait
// for it. The letters of the other topic do not.
func TestLettersOfAnotherTopicDoNotWait(t *testing.T) {
	const n = 40
	r := newRig(t, cooperative, 1)
	r.early = true // the oracle takes the commits of both topics for those of one
	waiting := make(chan struct{}, n)
	m := r.join(func(context.Context, *kafkaadapter.Message) error {
		return dedup.Permanent(errCut)
	}, func(c *kafkaadapter.Config) {
		c.Park = func(ctx context.Context, m *kafkaadapter.Message, _ error) error {
			if m.Topic == payments {
				return nil
			}
			waiting <- struct{}{}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		c.Observer.Parked = func(m *kafkaadapter.Message, _ error) { r.note(m.Topic) }
	}, kgo.ConsumeTopics(orders, payments))
	r.produce(0, 0, n)
	for range 16 {
		<-waiting
	}
	letters := make([]*kgo.Record, n)
	for i := range letters {
		letters[i] = &kgo.Record{
			Topic: payments, Value: []byte("v"),
			Headers: []kgo.RecordHeader{{Key: "message-id", Value: fmt.Append(nil, "pay_", i)}},
		}
	}
	r.send(letters...)
	r.eventually(func() (bool, string) {
		return r.noted(payments) == n, fmt.Sprint(r.noted(payments), " letters")
	})
	require.Zero(t, r.noted(orders))
	m.leave()
}
