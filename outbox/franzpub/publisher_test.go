package franzpub_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/franzpub"
)

func client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(opts...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestNew(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{
		"defaults":  nil,
		"topic":     {kgo.DefaultProduceTopic("other")}, // of records without a topic
		"sticky":    {kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil))},
		"by itself": {kgo.RecordPartitioner(kgo.ManualPartitioner())},
	} {
		_, err := franzpub.New(client(t, opts...))
		assert.NoError(t, err, name)
	}
	for option, opts := range map[string][]kgo.Opt{
		"RequiredAcks": {kgo.RequiredAcks(kgo.LeaderAck()),
			kgo.DisableIdempotentWrite()},
		"DisableIdempotentWrite":             {kgo.DisableIdempotentWrite()},
		"AllowIdempotentProduceCancellation": {kgo.AllowIdempotentProduceCancellation()},
		"TransactionalID":                    {kgo.TransactionalID("t")},
		"RecordPartitioner":                  {kgo.RecordPartitioner(kgo.RoundRobinPartitioner())},
		"ManualFlushing":                     {kgo.ManualFlushing()},
		"DefaultProduceTopicAlways": {kgo.DefaultProduceTopic("other"),
			kgo.DefaultProduceTopicAlways()},
	} {
		var input *outbox.InputError
		_, err := franzpub.New(client(t, opts...))
		require.ErrorAs(t, err, &input, option)
		assert.Equal(t, "kgo."+option, input.Field, option)
	}
	var input *outbox.InputError
	_, err := franzpub.New(nil)
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "kgo.Client", input.Field)
}

// kgo's error for brokers that cannot be reached names neither brokers nor topic.
func TestPublishNamesBrokersAndTopic(t *testing.T) {
	p, err := franzpub.New(client(t, kgo.SeedBrokers("127.0.0.1:1", "127.0.0.1:2")))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	results := p.Publish(ctx, []outbox.Message{{Topic: "orders"}})
	require.Len(t, results, 1)
	require.ErrorIs(t, results[0], context.DeadlineExceeded)
	assert.ErrorContains(t, results[0], `topic "orders", brokers [127.0.0.1:1 127.0.0.1:2]`)
}
