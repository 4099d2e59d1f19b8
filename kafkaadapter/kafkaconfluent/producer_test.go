package kafkaconfluent

import (
	"context"
	"strings"
	"testing"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceward/onceward/kafkaadapter"
)

// A producer that could lose a letter, or wait for one forever, is refused.
func TestBadProducer(t *testing.T) {
	for _, good := range []kafka.ConfigMap{
		{"message.timeout.ms": 60000},
		{"delivery.timeout.ms": "1000", "acks": "all", "enable.idempotence": true},
		{"message.timeout.ms": 1000, "request.required.acks": -1},
	} {
		require.NoError(t, CheckProducer(good), "%v", good)
	}
	for property, value := range map[string]kafka.ConfigValue{
		"acks": 1, "request.required.acks": "0", "transactional.id": "t",
		"message.timeout.ms": 0, "message.timeout.ms ": 60001, "message.timeout.ms  ": nil,
		"default.topic.config": kafka.ConfigMap{"acks": 1},
	} {
		config := kafka.ConfigMap{"message.timeout.ms": 1000}
		if property = strings.TrimSpace(property); value == nil {
			delete(config, property)
		} else {
			config[property] = value
		}
		wantInput(t, CheckProducer(config), "kafka.ConfigMap."+property)
	}
	_, err := Producer(nil)
	wantInput(t, err, "Producer")
	client, err := kafka.NewProducer(&kafka.ConfigMap{})
	require.NoError(t, err)
	client.Close()
	_, err = Producer(client)
	wantInput(t, err, "Producer")
}

// Send returns an error for a letter that is not delivered, and does not wait once ctx has ended.
func TestLetterIsNotDelivered(t *testing.T) {
	r := newRig(t, 1)
	require.NoError(t, r.cluster.CreateTopic("dead", 1, nil))
	p := producerOf(t, kafka.ConfigMap{"message.timeout.ms": 300,
		"bootstrap.servers": strings.Join(r.cluster.ListenAddrs(), ",")})
	r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas,
		Count: 1000})
	letter := &kafkaadapter.Message{Topic: "dead", Value: []byte("v")}
	assert.Equal(t, kafka.ErrMsgTimedOut, codeOf(p.Send(t.Context(), letter)))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	require.ErrorIs(t, p.Send(ctx, letter), errBroken)
}
