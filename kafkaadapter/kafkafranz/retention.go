package kafkafranz

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Retentions returns how long topics keep messages; negative: without limit. For that long a
// replay, or a group that is behind, may bring a message back, and the window of a Deduper must be
// longer. A topic that is only compacted keeps messages without limit. The result is a rule of
// thumb: Kafka drops whole segments, so a message may live up to segment.ms longer. It costs one
// round trip, and its retries, until ctx ends.
//
// The error is an [*dedup.InputError] for a nil ctx or client or for no topics, or the reason why
// the brokers did not answer.
func Retentions(ctx context.Context, client *kgo.Client,
	topics ...string) (map[string]time.Duration, error) {
	switch {
	case ctx == nil:
		return nil, &dedup.InputError{Field: "Context", Reason: "is nil"}
	case client == nil:
		return nil, &dedup.InputError{Field: "Client", Reason: "is nil"}
	case len(topics) == 0:
		return nil, &dedup.InputError{Field: "Topics", Reason: "is empty"}
	}
	ask := kmsg.NewPtrDescribeConfigsRequest()
	for _, topic := range topics {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, topic,
			[]string{"retention.ms", "cleanup.policy"}
		ask.Resources = append(ask.Resources, r)
	}
	answer, err := ask.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("kafkafranz: the topics' retention cannot be asked for: %w", err)
	}
	found := make(map[string]time.Duration, len(topics))
	for _, r := range answer.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return nil, fmt.Errorf("kafkafranz: the retention of topic %q cannot be asked for: %w",
				r.ResourceName, err)
		}
		values := map[string]string{}
		for _, c := range r.Configs {
			if c.Value != nil {
				values[c.Name] = *c.Value
			}
		}
		if found[r.ResourceName], err = kafkadriver.Retention(values); err != nil {
			return nil, fmt.Errorf("kafkafranz: topic %q: %w", r.ResourceName, err)
		}
	}
	for _, topic := range topics {
		if _, ok := found[topic]; !ok {
			return nil, fmt.Errorf("kafkafranz: the retention of topic %q was not answered", topic)
		}
	}
	return found, nil
}
