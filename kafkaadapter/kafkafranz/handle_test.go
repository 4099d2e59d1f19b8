package kafkafranz

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

var errBroken = errors.New("broken")

type parkFunc = func(context.Context, *kafkaadapter.Message, error) error

// A client that could lose a letter, or wait for one forever, is refused.
func TestBadProducer(t *testing.T) {
	r := newRig(t, 1)
	limit := kgo.RecordDeliveryTimeout(time.Second)
	for field, client := range map[string]*kgo.Client{
		"client": nil,
		"kgo.RequiredAcks": r.newClient(limit, kgo.RequiredAcks(kgo.LeaderAck()),
			kgo.DisableIdempotentWrite()),
		"kgo.TransactionalID":        r.newClient(limit, kgo.TransactionalID("t")),
		"kgo.RecordDeliveryTimeout":  r.newClient(),
		"kgo.RecordDeliveryTimeout ": r.newClient(kgo.RecordDeliveryTimeout(time.Hour)),
	} {
		_, err := Producer(client)
		wantInput(t, err, strings.TrimSpace(field))
	}
}

// If brokers do not say a topic's UUID, a consumer with Positions or a RangeHandler runs nothing.
func TestTopicWithoutUUID(t *testing.T) {
	older := kversion.Stable()
	older.SetMaxKeyVersion(int16(kmsg.Fetch), 12)
	for name, change := range map[string]func(*kafkaadapter.Config){
		"Positions": func(c *kafkaadapter.Config) { c.Positions = true },
		"RangeHandler": func(c *kafkaadapter.Config) {
			c.Deduper, c.Unclaimed, c.Handler, c.Order = nil, true, nil, kafkaadapter.ByPartition
			c.RangeHandler = func(context.Context, *kafkaadapter.Range) error {
				return dedup.Permanent(errBroken)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.produce(0, 0, 1)
			told := make(chan error, 100)
			m := r.join(nil, func(c *kafkaadapter.Config) {
				change(c)
				c.Observer.GroupError = func(err error) { told <- err }
			}, kgo.MaxVersions(older))
			require.ErrorContains(t, <-told, "has no UUID, which Positions and a RangeHandler need")
			m.leave()
			r.once(0)
		})
	}
}
