package kafkafranz

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A broker is asked how long topics keep messages, with their configuration.
func TestRetentions(t *testing.T) {
	r := newRig(t, 1)
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
		require.NoError(t, err)
		require.NoError(t, kerr.ErrorForCode(answer.Topics[0].ErrorCode))
	}
	got, err := Retentions(t.Context(), r.client, "day", "ever", "compacted", "both")
	require.NoError(t, err)
	assert.Equal(t, map[string]time.Duration{"day": 24 * time.Hour, "ever": -1, "compacted": -1,
		"both": time.Second}, got)
	_, err = Retentions(t.Context(), r.client, "day", "nowhere")
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
}

func TestRetentionsRefuses(t *testing.T) {
	_, err := Retentions(nil, &kgo.Client{}, "x") //nolint:staticcheck // on purpose
	wantInput(t, err, "Context")
	_, err = Retentions(t.Context(), nil, "x")
	wantInput(t, err, "Client")
	_, err = Retentions(t.Context(), &kgo.Client{})
	wantInput(t, err, "Topics")
}
