package kafkasarama

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// The rest of Lags is tested on a broker, in internal/integration/kafka.

func TestLagsRefuses(t *testing.T) {
	type client struct{ sarama.Client }
	for field, ask := range map[string]func() (map[string]time.Duration, error){
		"Client": func() (map[string]time.Duration, error) { return Lags(nil, "g", "a") },
		"Group":  func() (map[string]time.Duration, error) { return Lags(client{}, "", "a") },
		"Topics": func() (map[string]time.Duration, error) { return Lags(client{}, "g") },
	} {
		got, err := ask()
		wantRefusal(t, err, field, "")
		assert.Nil(t, got)
	}
}

// A batch that a broker sends may begin before the offset that was asked for, have no message, or
// end too early.
func TestFirstOf(t *testing.T) {
	first := time.UnixMilli(1_800_000_000_000)
	batch := func(offset int64, change func(*sarama.RecordBatch), deltas ...int64) *sarama.Records {
		b := &sarama.RecordBatch{FirstOffset: offset, FirstTimestamp: first,
			MaxTimestamp: first.Add(time.Hour)}
		for _, d := range deltas {
			b.Records = append(b.Records,
				&sarama.Record{OffsetDelta: d, TimestampDelta: time.Duration(d) * time.Second})
			b.LastOffsetDelta = int32(d)
		}
		if change != nil {
			change(b)
		}
		return &sarama.Records{RecordBatch: b}
	}
	found := func(after time.Duration) kafkadriver.Stretch {
		return kafkadriver.Stretch{Found: true, Sent: first.Add(after)}
	}
	for name, c := range map[string]struct {
		batches []*sarama.Records
		want    kafkadriver.Stretch
		err     error
	}{
		"nothing":   {nil, kafkadriver.Stretch{After: 12}, nil},
		"its first": {[]*sarama.Records{batch(12, nil, 0, 1)}, found(0), nil},
		"in the midst": {[]*sarama.Records{batch(10, nil, 0, 1, 2, 3)},
			found(2 * time.Second), nil},
		"behind a gap": {[]*sarama.Records{batch(10, nil, 0, 5)},
			found(5 * time.Second), nil},
		"the broker's time": {[]*sarama.Records{batch(12, func(b *sarama.RecordBatch) {
			b.LogAppendTime = true
		}, 0)}, found(time.Hour), nil},
		"a mark, and a batch": {[]*sarama.Records{batch(12, func(b *sarama.RecordBatch) {
			b.Control = true
		}, 0), batch(13, nil, 0)}, found(0), nil},
		"a mark": {[]*sarama.Records{batch(12, func(b *sarama.RecordBatch) {
			b.Control = true
		}, 0)}, kafkadriver.Stretch{After: 13}, nil},
		"compacted away": {[]*sarama.Records{batch(10, func(b *sarama.RecordBatch) {
			b.LastOffsetDelta = 9
		})}, kafkadriver.Stretch{After: 20}, nil},
		"compacted before it": {[]*sarama.Records{batch(10, func(b *sarama.RecordBatch) {
			b.LastOffsetDelta = 9
		}, 0, 1)}, kafkadriver.Stretch{After: 20}, nil},
		"cut off": {[]*sarama.Records{batch(12, func(b *sarama.RecordBatch) {
			b.PartialTrailingRecord = true
			b.LastOffsetDelta = 9
		})}, kafkadriver.Stretch{After: 12}, nil},
		"an old format": {[]*sarama.Records{{MsgSet: &sarama.MessageSet{}}},
			kafkadriver.Stretch{After: 12}, errOldFormat},
	} {
		got, err := firstOf(c.batches, 12)
		require.ErrorIs(t, err, c.err, name)
		assert.Equal(t, c.want, got, name)
	}
}
