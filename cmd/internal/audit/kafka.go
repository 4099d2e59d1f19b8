package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/cmd/internal/broker"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkafranz"
)

// quiet is how long a partition may send nothing before its end is reached; then reading stops.
const quiet = 20 * time.Second

// topic is a Kafka topic to read, from where an earlier run has ended.
type topic struct {
	options *Options
	client  *kgo.Client
	ends    map[int32]int64
	left    int64 // number of offsets
}

// openTopic finds out what there is to read. The map next holds, for each partition that an earlier
// run has read, the first offset to read now. openTopic adds the other partitions. Only committed
// messages are read.
func openTopic(ctx context.Context, o *Options, next map[int32]int64) (*topic, error) {
	opening, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	// If the last transaction was aborted, only its control record shows where a partition ends.
	client, err := o.Kafka.Open(opening, "onceward-audit",
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(16<<20))
	if err != nil {
		return nil, err
	}
	t := &topic{options: o, client: client, ends: map[int32]int64{}}
	if err := t.bounds(opening, kadm.NewClient(client), next); err != nil {
		client.Close()
		return nil, err
	}
	return t, nil
}

func (t *topic) bounds(ctx context.Context, admin *kadm.Client, next map[int32]int64) error {
	name := t.options.Topic
	starts, err := admin.ListStartOffsets(ctx, name)
	if err == nil && t.options.Since > 0 {
		starts, err = admin.ListOffsetsAfterMilli(ctx,
			time.Now().Add(-t.options.Since).UnixMilli(), name)
	}
	ends, err2 := admin.ListCommittedOffsets(ctx, name)
	if err = errors.Join(err, err2); err != nil {
		return fmt.Errorf("--brokers: %w", server.Unanswered(err, t.options.Kafka.Brokers...))
	}
	if err := cmp.Or(starts.Error(), ends.Error()); err != nil {
		return fmt.Errorf("--topic %q: %w", name, err)
	}
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(name, end.Partition)
		next[end.Partition] = max(next[end.Partition], start.Offset)
		t.ends[end.Partition] = end.Offset
		t.left += max(0, end.Offset-next[end.Partition])
	})
	return nil
}

// read calls yield for each message until yield returns false, and moves next past each message
// that yield has accepted. It reports whether everything was read.
func (t *topic) read(ctx context.Context, next map[int32]int64, yield func(*message) bool) (bool,
	error) {
	from, open := map[int32]kgo.Offset{}, 0
	for number, end := range t.ends {
		if next[number] < end {
			from[number] = kgo.NewOffset().At(next[number])
			open++
		}
	}
	t.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{t.options.Topic: from})
	for open > 0 {
		fetches, err := broker.Poll(ctx, t.client, quiet)
		if err != nil {
			return false, err
		}
		if fetches.Empty() {
			return false, nil
		}
		for all := fetches.RecordIter(); !all.Done(); {
			r := all.Next()
			if r.Offset >= t.ends[r.Partition] || next[r.Partition] >= t.ends[r.Partition] {
				continue
			}
			if !r.Attrs.IsControl() && !yield(t.options.kafkaMessage(r)) {
				return false, nil
			}
			if next[r.Partition] = r.Offset + 1; next[r.Partition] == t.ends[r.Partition] {
				open--
			}
		}
	}
	return true, nil
}

// kafkaMessage finds the id and the payload as the options say.
func (o *Options) kafkaMessage(r *kgo.Record) *message {
	m := kafkafranz.Message(r)
	out := &message{time: r.Timestamp, partition: r.Partition, produced: true,
		place: fmt.Sprintf("%s/%d@%d", r.Topic, r.Partition, r.Offset)}
	_, out.replayed = kafkaadapter.Replayed()(m)
	out.id, _ = o.id(m)
	switch {
	case o.Payload == "":
		out.payload = r.Value
	case o.Payload != none:
		text, _ := pick(r.Value, o.Payload)
		out.payload = []byte(text)
	}
	return out
}
