package franz

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/dedup"
)

// What topics keep is asked of a broker, with their configuration.
func TestRetentions(t *testing.T) {
	r := newRig(t, cooperative, 1)
	for topic, config := range map[string]map[string]string{
		"day": {"retention.ms": "86400000"}, "ever": {"retention.ms": "-1"},
		"compacted": {"retention.ms": "1000", "cleanup.policy": "compact"},
		"both":      {"retention.ms": "1000", "cleanup.policy": "compact,delete"},
	} {
		ask := kmsg.NewPtrCreateTopicsRequest()
		made := kmsg.NewCreateTopicsRequestTopic()
		made.Topic, made.NumPartitions, made.ReplicationFactor = topic, 1, 1
		for name, value := range config {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = name, kmsg.StringPtr(value)
			made.Configs = append(made.Configs, c)
		}
		ask.Topics = append(ask.Topics, made)
		answer, err := ask.RequestWith(t.Context(), r.client)
		if err != nil {
			t.Fatal(err)
		}
		if err := kerr.ErrorForCode(answer.Topics[0].ErrorCode); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Retentions(t.Context(), r.client, "day", "ever", "compacted", "both")
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]time.Duration{"day": 24 * time.Hour, "ever": -1,
		"compacted": -1, "both": time.Second} {
		if got[topic] != want {
			t.Errorf("%s keeps for %v, want %v", topic, got[topic], want)
		}
	}
	if _, err := Retentions(t.Context(), r.client, "day", "nowhere"); !errors.Is(err,
		kerr.UnknownTopicOrPartition) {
		t.Errorf("of a topic that there is not: %v", err)
	}
}

func TestRetentionsRefuses(t *testing.T) {
	var input *dedup.InputError
	for field, ask := range map[string]func() (map[string]time.Duration, error){
		"Context": func() (map[string]time.Duration, error) { return Retentions(nil, &kgo.Client{}, "x") }, //nolint:staticcheck // on purpose
		"Client": func() (map[string]time.Duration, error) {
			return Retentions(context.Background(), nil, "x")
		},
		"Topics": func() (map[string]time.Duration, error) {
			return Retentions(context.Background(), &kgo.Client{})
		},
	} {
		if _, err := ask(); !errors.As(err, &input) || input.Field != field {
			t.Errorf("got %v, want one of %s", err, field)
		}
	}
}
