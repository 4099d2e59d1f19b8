package kafkaadapter

import (
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/lag"
)

// The rest of Lags is tested on a broker, in internal/integration/kafka.

func TestLagsRefuses(t *testing.T) {
	type client struct{ sarama.Client }
	for field, ask := range map[string]func() (map[string]time.Duration, error){
		"Client": func() (map[string]time.Duration, error) { return Lags(nil, "g", "a") },
		"Group":  func() (map[string]time.Duration, error) { return Lags(client{}, "", "a") },
		"Topics": func() (map[string]time.Duration, error) { return Lags(client{}, "g") },
	} {
		var input *dedup.InputError
		if got, err := ask(); !errors.As(err, &input) || input.Field != field || got != nil {
			t.Errorf("%v, %v; want one of %s", got, err, field)
		}
	}
}

// What a broker sends: a batch may begin before what was asked for, have no message, or end too
// early.
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
	found := func(after time.Duration) lag.Stretch {
		return lag.Stretch{Found: true, Sent: first.Add(after)}
	}
	for name, c := range map[string]struct {
		batches []*sarama.Records
		want    lag.Stretch
		err     error
	}{
		"nothing":   {nil, lag.Stretch{After: 12}, nil},
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
		}, 0)}, lag.Stretch{After: 13}, nil},
		"compacted away": {[]*sarama.Records{batch(10, func(b *sarama.RecordBatch) {
			b.LastOffsetDelta = 9
		})}, lag.Stretch{After: 20}, nil},
		"compacted before it": {[]*sarama.Records{batch(10, func(b *sarama.RecordBatch) {
			b.LastOffsetDelta = 9
		}, 0, 1)}, lag.Stretch{After: 20}, nil},
		"cut off": {[]*sarama.Records{batch(12, func(b *sarama.RecordBatch) {
			b.PartialTrailingRecord = true
			b.LastOffsetDelta = 9
		})}, lag.Stretch{After: 12}, nil},
		"an old format": {[]*sarama.Records{{MsgSet: &sarama.MessageSet{}}},
			lag.Stretch{After: 12}, errOldFormat},
	} {
		if got, err := firstOf(c.batches, 12); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, err, c.want, c.err)
		}
	}
}
